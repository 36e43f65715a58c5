//! The journal of an array: absent, open, or not read yet.

use std::cell::RefCell;
use std::rc::Rc;

use stripewise_drive::{Semaphore, SemaphorePermit};

use crate::array::spec::AreaPlace;
use crate::log::WriteLog;

/// Journal of an array.
pub(crate) struct LogSlot {
    log: RefCell<Option<Rc<WriteLog>>>,
    /// Areas of the journal and an epoch, for a read-only array whose journal was not read yet: it
    /// is replayed before the first read, on members that keep the result in memory.
    unread: RefCell<Option<(Vec<AreaPlace>, u64)>>,
    /// Allows one reader at a time.
    reading: Semaphore,
}

impl Default for LogSlot {
    fn default() -> Self {
        Self { log: RefCell::default(), unread: RefCell::default(), reading: Semaphore::new(1) }
    }
}

impl LogSlot {
    /// The journal, if one is open.
    pub(crate) fn open(&self) -> Option<Rc<WriteLog>> {
        self.log.borrow().clone()
    }

    pub(crate) fn set(&self, log: Rc<WriteLog>) {
        *self.log.borrow_mut() = Some(log);
    }

    /// True if records are kept that were replayed when the array was opened.
    pub(crate) fn has_replayed(&self) -> bool {
        self.log.borrow().as_ref().is_some_and(|log| log.has_replayed())
    }

    /// Removes the journal area of a drive that is gone.
    pub(crate) fn remove_area(&self, number: u32) {
        if let Some(log) = &*self.log.borrow() {
            log.journal.remove_area(number);
        }
    }

    /// Defers reading the journal.
    pub(crate) fn leave_unread(&self, places: Vec<AreaPlace>, fresh_epoch: u64) {
        *self.unread.borrow_mut() = Some((places, fresh_epoch));
    }

    /// True if the journal has not been read yet.
    pub(crate) fn is_unread(&self) -> bool {
        self.unread.borrow().is_some()
    }

    /// Areas of the unread journal, and the epoch for a new journal if nothing is left of it.
    pub(crate) fn unread(&self) -> Option<(Vec<AreaPlace>, u64)> {
        self.unread.borrow().clone()
    }

    /// Marks the journal as read.
    pub(crate) fn note_read(&self) {
        self.unread.take();
    }

    /// Waits for exclusive access, to read the journal or to drop what was read.
    pub(crate) async fn read_alone(&self) -> SemaphorePermit {
        self.reading.acquire(1).await
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn journal_is_read_once_by_one_reader() {
        let slot = LogSlot::default();
        assert!(!slot.is_unread() && slot.open().is_none() && !slot.has_replayed());
        slot.leave_unread(vec![AreaPlace { drive: 1, slab: 2, slabs: 3 }], 7);
        assert_eq!(slot.unread().map(|(places, epoch)| (places.len(), epoch)), Some((1, 7)));
        let alone = slot.read_alone().now_or_never().expect("there is no other reader");
        let mut next = pin!(slot.read_alone());
        assert!(next.as_mut().now_or_never().is_none());
        slot.note_read();
        drop(alone);
        assert!(next.now_or_never().is_some() && !slot.is_unread());
    }
}
