//! Reads in progress. A read looks up a place and then reads there; in between the block may move
//! and its segment be freed. So a freed segment is reused only after every read that began before.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Tickets of reads in progress.
#[derive(Clone, Default)]
pub(crate) struct Readers {
    next: Rc<Cell<u64>>,
    active: Rc<RefCell<BTreeSet<u64>>>,
}

impl Readers {
    /// Begins a read, which ends when the ticket is dropped.
    pub(crate) fn begin(&self) -> Ticket {
        let number = self.next.replace(self.next.get() + 1);
        self.active.borrow_mut().insert(number);
        Ticket { number, active: self.active.clone() }
    }

    /// Ticket of the next read: those in progress have lower ones.
    pub(crate) fn next(&self) -> u64 {
        self.next.get()
    }

    /// Ticket of the oldest read in progress; the next one if there is none.
    pub(crate) fn oldest(&self) -> u64 {
        self.active.borrow().first().copied().unwrap_or(self.next.get())
    }
}

/// A read in progress.
pub(crate) struct Ticket {
    number: u64,
    active: Rc<RefCell<BTreeSet<u64>>>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.active.borrow_mut().remove(&self.number);
    }
}
