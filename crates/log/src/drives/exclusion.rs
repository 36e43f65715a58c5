//! Members that miss writes, and the record of that.
//!
//! A member is left out at once, and nothing that it lacks counts before the record says so
//! (invariant I7): all callers wait for [`Exclusion::until_recorded`] before they acknowledge
//! anything, not only the one that met the refusal. Fault expected: a record that cannot be
//! written; nothing counts then.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stripewise_drive::Event;
use stripewise_layout::MemberSet;

use crate::error::LogError;
use crate::roots::RootStore;

/// The members that are left out.
pub(crate) struct Exclusion {
    missing: Cell<MemberSet>,
    roots: Rc<dyn RootStore>,
    /// Exclusions that are being recorded.
    pending: Cell<usize>,
    failed: RefCell<Option<LogError>>,
    ended: Event,
}

impl Exclusion {
    pub(crate) fn new(missing: MemberSet, roots: Rc<dyn RootStore>) -> Self {
        let (pending, failed, ended) = (Cell::new(0), RefCell::default(), Event::new());
        Self { missing: Cell::new(missing), roots, pending, failed, ended }
    }

    /// Members left out.
    pub(crate) fn missing(&self) -> MemberSet {
        self.missing.get()
    }

    /// Leaves out members of which the record says so already.
    pub(crate) fn add_recorded(&self, missing: MemberSet) {
        self.missing.set(self.missing.get().iter().chain(missing.iter()).collect());
    }

    /// Leaves out members, and has that recorded.
    pub(crate) async fn record(&self, missing: MemberSet) -> Result<(), LogError> {
        self.add_recorded(missing);
        self.pending.set(self.pending.get() + 1);
        let recorded = self.roots.exclude(missing).await;
        self.pending.set(self.pending.get() - 1);
        if let Err(why) = &recorded {
            self.failed.borrow_mut().get_or_insert_with(|| why.clone());
        }
        self.ended.notify_all();
        recorded
    }

    /// Counts a member as present.
    pub(crate) fn take_in(&self, member: usize) {
        let mut missing = self.missing.get();
        missing.remove(member);
        self.missing.set(missing);
    }

    /// Has it recorded that a member misses nothing.
    pub(crate) async fn record_included(&self, member: usize) -> Result<(), LogError> {
        self.roots.include(member).await
    }

    /// Waits until every exclusion begun before is recorded.
    pub(crate) async fn until_recorded(&self) -> Result<(), LogError> {
        while self.pending.get() > 0 {
            self.ended.wait().await;
        }
        self.failed.borrow().clone().map_or(Ok(()), Err)
    }
}
