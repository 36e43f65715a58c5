//! Waits for writes that began before a conversion did. They hold no range of the conversion, so
//! they must end before anything is copied. They may have begun without a conversion, or during an
//! earlier one that has ended since.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stripewise_drive::Event;

/// Number of writes in flight.
type Count = Rc<Cell<usize>>;

#[derive(Default)]
pub(crate) struct WriteEpochs {
    current: RefCell<Count>,
    earlier: RefCell<Vec<Count>>,
    ended: Event,
}

/// Guard that counts a write until it is dropped.
pub(crate) struct CountedWrite<'a> {
    epochs: &'a WriteEpochs,
    count: Count,
}

impl WriteEpochs {
    /// Counts a write that begins now.
    pub(crate) fn count(&self) -> CountedWrite<'_> {
        let count = self.current.borrow().clone();
        count.set(count.get() + 1);
        CountedWrite { epochs: self, count }
    }

    /// Starts a new epoch: all writes in flight now belong to an earlier one.
    pub(crate) fn turn(&self) {
        self.earlier.borrow_mut().push(self.current.take());
    }

    /// Waits until all writes of earlier epochs have ended.
    pub(crate) async fn until_earlier_ended(&self) {
        loop {
            let ended = self.ended.wait();
            self.earlier.borrow_mut().retain(|count| count.get() > 0);
            if self.earlier.borrow().is_empty() {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for CountedWrite<'_> {
    fn drop(&mut self) {
        self.count.set(self.count.get() - 1);
        if self.count.get() == 0 {
            self.epochs.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn only_writes_of_earlier_epochs_are_awaited() {
        let epochs = WriteEpochs::default();
        let has_ended = || epochs.until_earlier_ended().now_or_never().is_some();
        let (before_the_first, longest) = (epochs.count(), epochs.count());
        epochs.turn();
        let in_the_first = epochs.count();
        assert!(!has_ended());
        drop(before_the_first);
        assert!(!has_ended(), "another one began then");
        epochs.turn();
        let in_the_second = epochs.count();
        drop(in_the_first);
        assert!(!has_ended(), "one of the first epoch is still in flight");
        epochs.turn();
        let in_the_third = epochs.count();
        drop(longest);
        assert!(!has_ended(), "that of the second epoch is still in flight");
        let mut waiting = Box::pin(epochs.until_earlier_ended());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(in_the_second);
        assert!(waiting.now_or_never().is_some(), "the last write of an earlier epoch has ended");
        drop(in_the_third);
    }
}
