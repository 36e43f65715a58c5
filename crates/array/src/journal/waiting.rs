//! Waiting in the journal: appends for their batch, and reservations for space.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

use smallvec::SmallVec;

use super::Record;
use crate::error::ArrayError;

pub(super) type Sequences = SmallVec<[u64; 4]>;

/// Result of an append, and the task that waits for it.
#[derive(Default)]
pub(super) struct Ticket {
    pub result: RefCell<Option<Result<Sequences, ArrayError>>>,
    pub waker: Cell<Option<Waker>>,
}

impl Ticket {
    pub(super) fn complete(&self, result: Result<Sequences, ArrayError>) {
        *self.result.borrow_mut() = Some(result);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// An append without a batch.
pub(super) struct Pending {
    pub records: Vec<Record>,
    pub head_bytes: u64,
    pub payload_bytes: u64,
    pub segments: usize,
    pub grant: Grant,
    pub ticket: Rc<Ticket>,
}

/// Priority and limit of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quota {
    /// A client that holds no stripe yet: leaves the space that destaging needs, and some for
    /// holders of stripes.
    Client,
    /// A holder of stripes that is about to write in place. Clients that hold a reservation may
    /// wait for these stripes, so there is space for one such append beside theirs.
    InPlace,
    /// Destaging, which frees space; must proceed in the order described in the module.
    Destage,
}

/// Areas, by the ids of their rings.
pub(super) type RingIds = SmallVec<[u64; 4]>;

/// Pages reserved in some areas.
#[derive(Clone, Debug, Default)]
pub(super) struct Grant {
    pub pages: u64,
    pub rings: RingIds,
}

pub(super) struct Waiter {
    pub pages: u64,
    pub quota: Quota,
    pub result: RefCell<Option<Result<Grant, ArrayError>>>,
    pub waker: Cell<Option<Waker>>,
}
