//! The flag that ends the reading of requests at shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set at shutdown: no further requests are read. Clones are the same, on any thread.
#[derive(Clone, Default)]
pub(crate) struct ShuttingDown(Arc<AtomicBool>);

impl ShuttingDown {
    pub(crate) fn begin(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
