//! Reads in flight, so that slabs are reused only when no read can still reach them.
//!
//! Every read counts in the current epoch. A caller that has taken slabs out of the slab map flips
//! the epoch and waits until the former one is empty: reads that begin later see the new map and do
//! not delay it.

use std::cell::Cell;

use stripewise_drive::Event;

/// Numbers of reads in two epochs.
#[derive(Default)]
pub(crate) struct ReadEpochs {
    in_flight: Cell<[usize; 2]>,
    current: Cell<usize>,
    ended: Event,
}

impl ReadEpochs {
    /// Counts a read until the guard is dropped.
    pub(crate) fn begin(&self) -> ReadGuard<'_> {
        let epoch = self.current.get();
        self.change(epoch, 1);
        ReadGuard { epochs: self, epoch }
    }

    /// Number of reads in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.get().iter().sum()
    }

    /// Waits until every read that is in flight now has ended.
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

/// Guard that counts a read until it is dropped.
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
