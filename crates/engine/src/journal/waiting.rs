//! What waits in the journal: appends for their batch, and those that have yet to write one for
//! room.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::Waker;

use smallvec::SmallVec;

use super::Record;
use crate::error::ArrayError;

pub(super) type Sequences = SmallVec<[u64; 4]>;

/// Where an append waits for its end.
#[derive(Default)]
pub(super) struct Ticket {
    pub result: RefCell<Option<Result<Sequences, ArrayError>>>,
    pub waker: Cell<Option<Waker>>,
}

impl Ticket {
    pub(super) fn tell(&self, result: Result<Sequences, ArrayError>) {
        *self.result.borrow_mut() = Some(result);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// An append that has no batch yet.
pub(super) struct Pending {
    pub records: Vec<Record>,
    pub head_bytes: u64,
    pub payload_bytes: u64,
    pub segments: usize,
    pub grant: Grant,
    pub ticket: Rc<Ticket>,
}

/// Who wants room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quota {
    /// Clients that hold nothing yet: leave what destaging needs, and some for those who hold
    /// stripes.
    Client,
    /// Who holds stripes and is about to write in place. Clients may wait for these stripes with
    /// their room in hand, so there is room for one such append beside theirs.
    InPlace,
    /// What frees room; see the module's words on order.
    Destage,
}

/// Areas by their ring's id.
pub(super) type RingIds = SmallVec<[u64; 4]>;

/// Pages promised in some areas.
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
