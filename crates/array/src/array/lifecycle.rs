//! Lifecycle of an array: the states in which it refuses requests.
//!
//! An array that is *protected* writes nothing more to any drive: it was opened for reading, or it
//! lost more drives than it can spare. An array is *full* when the file system below one of its
//! drives is: nothing is written in place any more. *Closed* arrays take no requests at all.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::ArrayError;

/// State of an array.
#[derive(Default)]
pub(crate) struct Lifecycle {
    closed: Cell<bool>,
    closed_in_order: Arc<AtomicBool>,
    protected: Cell<bool>,
    /// Its volume was deleted, or converted: what drives refuse of it is no reason to give one up.
    abandoned: Cell<bool>,
    /// The drive under which the file system is full. A stripe of which a write failed half-way is
    /// put right by the journal at the next opening, unless another write comes in between.
    full: RefCell<Option<Arc<str>>>,
    /// Something was, or may have been, written since opening.
    changed: Cell<bool>,
}

impl Lifecycle {
    /// Open; protected if nothing may be written.
    pub(crate) fn new(read_only: bool) -> Self {
        Self { protected: Cell::new(read_only), ..Self::default() }
    }

    /// From now on nothing is written; reads go on.
    pub(crate) fn protect(&self) {
        self.protected.set(true);
    }

    /// True if nothing may be written to any drive.
    pub(crate) fn is_protected(&self) -> bool {
        self.protected.get()
    }

    /// The volume was deleted, or another array holds it now: nothing that this one holds matters.
    pub(crate) fn abandon(&self) {
        self.protected.set(true);
        self.abandoned.set(true);
    }

    /// True if the array's contents are no longer needed.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.get()
    }

    /// The file system below `drive` is full. Whether that is news.
    pub(crate) fn fill_up(&self, drive: Arc<str>) -> bool {
        self.full.borrow_mut().replace(drive).is_none()
    }

    /// True if a file system below is full.
    pub(crate) fn is_full(&self) -> bool {
        self.full.borrow().is_some()
    }

    /// Why nothing is written any more, if so.
    pub(crate) fn stopped(&self) -> Option<ArrayError> {
        if let Some(drive) = &*self.full.borrow() {
            return Some(ArrayError::FileSystemFull { drive: drive.to_string() });
        }
        self.protected.get().then_some(ArrayError::Protected)
    }

    /// Something is about to be written.
    pub(crate) fn note_change(&self) {
        self.changed.set(true);
    }

    /// True if something may have been written since opening.
    pub(crate) fn is_changed(&self) -> bool {
        self.changed.get()
    }

    /// No more requests.
    pub(crate) fn close(&self) {
        self.closed.set(true);
    }

    /// True if it takes no more requests.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// It is closed, and everything acknowledged is durable.
    pub(crate) fn note_closed_in_order(&self) {
        self.closed_in_order.store(true, Ordering::Release);
    }

    /// True if it was closed with all acknowledged data durable.
    pub(crate) fn is_closed_in_order(&self) -> bool {
        self.closed_in_order.load(Ordering::Acquire)
    }

    /// The same, as a flag that outlives the array.
    pub(crate) fn closed_in_order(&self) -> Arc<AtomicBool> {
        self.closed_in_order.clone()
    }

    /// Lets what the journal holds be written to drives that keep it in memory, until
    /// [`Self::end_recovery_in_memory`]. Gives what that needs.
    pub(crate) fn begin_recovery_in_memory(&self) -> Option<Arc<str>> {
        self.protected.set(false);
        self.full.take()
    }

    /// Protected again, and nothing counts as changed: the drives are as they were.
    pub(crate) fn end_recovery_in_memory(&self, full: Option<Arc<str>>) {
        self.protected.set(true);
        self.full.replace(full);
        self.changed.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_file_system_is_reported_once_and_first() {
        let lifecycle = Lifecycle::new(true);
        assert!(matches!(lifecycle.stopped(), Some(ArrayError::Protected)));
        assert!(lifecycle.fill_up("drive0".into()) && !lifecycle.fill_up("drive1".into()));
        assert!(matches!(lifecycle.stopped(), Some(ArrayError::FileSystemFull { .. })));
    }

    #[test]
    fn recovery_in_memory_leaves_no_trace() {
        let lifecycle = Lifecycle::new(true);
        lifecycle.fill_up("drive0".into());
        let full = lifecycle.begin_recovery_in_memory();
        assert!(lifecycle.stopped().is_none());
        lifecycle.note_change();
        lifecycle.end_recovery_in_memory(full);
        assert!(lifecycle.is_protected() && lifecycle.is_full() && !lifecycle.is_changed());
    }
}
