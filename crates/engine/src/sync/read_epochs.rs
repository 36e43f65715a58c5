//! Reads under way, so that slabs can be reused once no read can still reach them.
//!
//! Every read counts itself into the current epoch. A caller that has taken slabs out of the slab
//! map flips the epoch and waits for the former one to empty: reads that begin later see the new
//! map, and do not hold it up.

use std::cell::Cell;

use stripewise_drive::Event;

/// Counts of reads in two epochs.
#[derive(Default)]
pub(crate) struct ReadEpochs {
    in_flight: Cell<[usize; 2]>,
    current: Cell<usize>,
    ended: Event,
}

impl ReadEpochs {
    /// Counts a read for as long as the guard lives.
    pub(crate) fn begin(&self) -> ReadGuard<'_> {
        let epoch = self.current.get();
        self.change(epoch, 1);
        ReadGuard { epochs: self, epoch }
    }

    /// Reads under way.
    pub(crate) fn under_way(&self) -> usize {
        self.in_flight.get().iter().sum()
    }

    /// Ends when every read that is under way now has ended.
    pub(crate) async fn drain(&self) {
        // Two flips: the other epoch may still have readers from the flip before.
        for _ in 0..2 {
            let former = self.current.get();
            self.until_empty(1 - former).await;
            self.current.set(1 - former);
            self.until_empty(former).await;
        }
    }

    async fn until_empty(&self, epoch: usize) {
        while self.in_flight.get()[epoch] > 0 {
            self.ended.wait().await;
        }
    }

    fn change(&self, epoch: usize, by: isize) {
        let mut reads = self.in_flight.get();
        reads[epoch] = reads[epoch].strict_add_signed(by);
        self.in_flight.set(reads);
    }
}

/// A read under way.
pub(crate) struct ReadGuard<'a> {
    epochs: &'a ReadEpochs,
    epoch: usize,
}

impl Drop for ReadGuard<'_> {
    fn drop(&mut self) {
        self.epochs.change(self.epoch, -1);
        if self.epochs.in_flight.get()[self.epoch] == 0 {
            self.epochs.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn drain_waits_for_earlier_reads_only() {
        let epochs = ReadEpochs::default();
        let earlier = epochs.begin();
        let mut drain = pin!(epochs.drain());
        assert!(drain.as_mut().now_or_never().is_none());
        let later = epochs.begin();
        drop(earlier);
        // The second flip waits for reads that began since the first one.
        assert!(drain.as_mut().now_or_never().is_none());
        let latest = epochs.begin();
        drop(later);
        assert!(drain.now_or_never().is_some());
        drop(latest);
        assert!(epochs.drain().now_or_never().is_some());
    }
}
