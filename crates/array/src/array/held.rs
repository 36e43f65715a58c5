//! Stripes that the pool holds, by numbers. The guards stay on the array's thread.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::stripes::stripe_table::StripeGuard;

/// Exclusive access to stripes, until it is dropped.
pub struct HeldStripes(#[allow(dead_code, reason = "held for its drop")] pub(crate) Vec<StripeGuard>);

/// Stripes that the pool holds.
#[derive(Default)]
pub(crate) struct HeldForPool {
    held: RefCell<BTreeMap<u64, HeldStripes>>,
    next: Cell<u64>,
}

impl HeldForPool {
    /// Keeps stripes until [`Self::release`] of the number that this returns.
    pub(crate) fn keep(&self, held: HeldStripes) -> u64 {
        let number = self.next.replace(self.next.get() + 1);
        self.held.borrow_mut().insert(number, held);
        number
    }

    pub(crate) fn release(&self, number: u64) {
        // Dropped outside the borrow: it wakes writers.
        let held = self.held.borrow_mut().remove(&number);
        drop(held);
    }
}
