//! Which writes began before a conversion did: they hold no range of it, and are waited for before
//! anything is copied. They may have begun without a conversion, or in an earlier one that has
//! ended since.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stripewise_drive::Event;

/// Writes under way.
type Count = Rc<Cell<usize>>;

#[derive(Default)]
pub(in crate::pool) struct WriteEpochs {
    current: RefCell<Count>,
    earlier: RefCell<Vec<Count>>,
    ended: Event,
}

/// A write under way, for as long as it lives.
pub(in crate::pool) struct CountedWrite<'a> {
    epochs: &'a WriteEpochs,
    count: Count,
}

impl WriteEpochs {
    /// A write begins.
    pub(crate) fn count(&self) -> CountedWrite<'_> {
        let count = self.current.borrow().clone();
        count.set(count.get() + 1);
        CountedWrite { epochs: self, count }
    }

    /// What is under way now is earlier from now on.
    pub(crate) fn turn(&self) {
        self.earlier.borrow_mut().push(self.current.take());
    }

    /// Ends when all that began before the last turn has ended.
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
        assert!(!has_ended(), "one is older still");
        epochs.turn();
        let in_the_third = epochs.count();
        drop(longest);
        assert!(!has_ended(), "that of the second one goes on");
        let mut waiting = Box::pin(epochs.until_earlier_ended());
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(in_the_second);
        assert!(waiting.now_or_never().is_some(), "it is told, and that of this one goes on");
        drop(in_the_third);
    }
}
