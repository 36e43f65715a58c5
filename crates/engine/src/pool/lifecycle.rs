//! Whether a pool may still be changed, and whose turn it is to do so.
//!
//! Changes of drives and volumes go one at a time, each of several commits and I/O. A caller that
//! waits for its turn is reason enough for background work to rest. Fault expected: the pool is
//! closed while a caller waits.

use std::cell::Cell;

use stripewise_drive::{Semaphore, SemaphorePermit};

use crate::pool::OpenMode;
use crate::pool::error::PoolError;

/// How far an open pool's life is.
pub(in crate::pool) struct Lifecycle {
    mode: OpenMode,
    turns: Semaphore,
    /// Exported: what is written from now on says that no host has the pool.
    released: Cell<bool>,
    closed: Cell<bool>,
}

impl Lifecycle {
    /// Open.
    pub(in crate::pool) fn new(mode: OpenMode) -> Self {
        Self { mode, turns: Semaphore::new(1), released: Cell::new(false), closed: Cell::new(false) }
    }

    /// How it was opened.
    pub(in crate::pool) fn mode(&self) -> OpenMode {
        self.mode
    }

    /// Whether nothing is written to any drive.
    pub(in crate::pool) fn is_read_only(&self) -> bool {
        self.mode == OpenMode::ReadOnly
    }

    /// Whether it is closed, or being closed.
    pub(in crate::pool) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Closes; whether it was open.
    pub(in crate::pool) fn close(&self) -> bool {
        !self.closed.replace(true)
    }

    /// Refuses where the pool, of this name, is closed.
    pub(in crate::pool) fn check_open(&self, pool: &str) -> Result<(), PoolError> {
        if self.is_closed() { Err(PoolError::Closed { pool: pool.to_owned() }) } else { Ok(()) }
    }

    /// Refuses where the pool, of this name, is closed or may not be changed.
    pub(in crate::pool) fn check_changeable(&self, pool: &str) -> Result<(), PoolError> {
        self.check_open(pool)?;
        if self.is_read_only() { Err(PoolError::ReadOnly { pool: pool.to_owned() }) } else { Ok(()) }
    }

    /// The turn to change drives or volumes. The pool may be closed while the caller waits for it.
    pub(in crate::pool) async fn turn(&self) -> SemaphorePermit {
        self.turns.acquire(1).await
    }

    /// Whether a caller waits for its turn.
    pub(in crate::pool) fn is_turn_wanted(&self) -> bool {
        self.turns.waiting() > 0
    }

    /// No host has the pool once a commit says so; `false`: this one keeps it.
    pub(in crate::pool) fn set_released(&self, released: bool) {
        self.released.set(released);
    }

    /// Whether the next commit says that no host has the pool.
    pub(in crate::pool) fn is_released(&self) -> bool {
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
