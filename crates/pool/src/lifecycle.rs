//! State of an open pool, and the order of changes to it.
//!
//! Changes of drives and volumes run one at a time; each takes several commits and I/O. Background
//! work pauses while a caller waits to make one. Fault expected: the pool is closed while a caller
//! waits.

use std::cell::Cell;

use stripewise_drive::{Semaphore, SemaphorePermit};

use crate::OpenMode;
use crate::error::PoolError;

/// Open mode and state of an open pool.
pub(crate) struct Lifecycle {
    mode: OpenMode,
    turns: Semaphore,
    /// Exported: every commit from now on records that no host uses the pool.
    released: Cell<bool>,
    closed: Cell<bool>,
}

impl Lifecycle {
    /// State of a pool that was just opened.
    pub(crate) fn new(mode: OpenMode) -> Self {
        Self { mode, turns: Semaphore::new(1), released: Cell::new(false), closed: Cell::new(false) }
    }

    /// The mode that the pool was opened in.
    pub(crate) fn mode(&self) -> OpenMode {
        self.mode
    }

    /// True if nothing may be written to any drive.
    pub(crate) fn is_read_only(&self) -> bool {
        self.mode == OpenMode::ReadOnly
    }

    /// True if the pool is closed or being closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Closes the pool. True if it was open.
    pub(crate) fn close(&self) -> bool {
        !self.closed.replace(true)
    }

    /// Fails if the pool, of this name, is closed.
    pub(crate) fn check_open(&self, pool: &str) -> Result<(), PoolError> {
        if self.is_closed() { Err(PoolError::Closed { pool: pool.to_owned() }) } else { Ok(()) }
    }

    /// Fails if the pool, of this name, is closed or read-only.
    pub(crate) fn check_changeable(&self, pool: &str) -> Result<(), PoolError> {
        self.check_open(pool)?;
        if self.is_read_only() { Err(PoolError::ReadOnly { pool: pool.to_owned() }) } else { Ok(()) }
    }

    /// Waits for the exclusive right to change drives or volumes. The pool may be closed in the
    /// meantime.
    pub(crate) async fn turn(&self) -> SemaphorePermit {
        self.turns.acquire(1).await
    }

    /// True if a caller waits to change drives or volumes.
    pub(crate) fn is_turn_wanted(&self) -> bool {
        self.turns.waiting() > 0
    }

    /// With `true`, the next commit records that no host uses the pool; with `false`, this host
    /// keeps it.
    pub(crate) fn set_released(&self, released: bool) {
        self.released.set(released);
    }

    /// True if commits record that no host uses the pool.
    pub(crate) fn is_released(&self) -> bool {
        self.released.get()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use stripewise_runtime::VirtualExecutor;

    use super::*;

    #[test]
    fn a_closed_pool_is_refused_as_closed_and_closes_once() {
        let lifecycle = Lifecycle::new(OpenMode::ReadOnly);
        assert!(lifecycle.check_open("tank").is_ok());
        assert!(matches!(lifecycle.check_changeable("tank"), Err(PoolError::ReadOnly { .. })));
        assert!(lifecycle.close() && !lifecycle.close());
        assert!(
            matches!(lifecycle.check_changeable("tank"), Err(PoolError::Closed { pool }) if pool == "tank")
        );
    }

    #[test]
    fn a_caller_that_waits_for_its_turn_is_seen() {
        VirtualExecutor::new().block_on(async {
            let lifecycle = Lifecycle::new(OpenMode::ReadWrite);
            let first = lifecycle.turn().await;
            let mut second = std::pin::pin!(lifecycle.turn());
            assert!(second.as_mut().now_or_never().is_none() && lifecycle.is_turn_wanted());
            drop(first);
            second.await;
            assert!(!lifecycle.is_turn_wanted());
        });
    }
}
