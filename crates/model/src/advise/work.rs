//! Progress of advice: predictions and risks done, of those that are known to be needed.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts work for the caller's progress.
pub(super) struct Work<'a> {
    done: AtomicU64,
    total: AtomicU64,
    report: &'a (dyn Fn(u64, u64) + Sync),
}

impl<'a> Work<'a> {
    pub(super) fn new(report: &'a (dyn Fn(u64, u64) + Sync)) -> Self {
        Self { done: AtomicU64::new(0), total: AtomicU64::new(0), report }
    }

    /// More is needed.
    pub(super) fn expect(&self, pieces: usize) {
        self.total.fetch_add(pieces as u64, Ordering::Relaxed);
    }

    /// A piece is done.
    pub(super) fn done(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        (self.report)(done, self.total.load(Ordering::Relaxed));
    }
}
