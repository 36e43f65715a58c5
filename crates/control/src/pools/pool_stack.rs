//! A pool that is open, with the pools that it stands on: opened before it, closed after it.

use std::cell::RefCell;
use std::rc::Rc;

use crate::failure::Result;
use crate::pools::open_pool::OpenPool;

/// A pool that no other of the process stands on, and those below it.
#[derive(Clone)]
pub(crate) struct PoolStack {
    pub(super) top: Rc<OpenPool>,
    pub(super) below: Rc<PoolsBelow>,
}

impl PoolStack {
    /// The name of the pool on top.
    pub(super) fn name(&self) -> &str {
        &self.top.name
    }

    /// Closes the pool on top, then those below. Its lock outlives theirs.
    pub(super) async fn close(self) -> Result<()> {
        let closed = self.top.close().await;
        closed.and(self.below.close().await)
    }

    /// Erases the pool on top from its drives and the list, and closes those below.
    pub(super) async fn destroy(self) -> Result<()> {
        let destroyed = self.top.destroy().await;
        destroyed.and(self.below.close().await)
    }
}

/// Pools that are open since others lie on their volumes.
pub(crate) struct PoolsBelow {
    /// What another process is told that finds one of them in use.
    pub(super) doing: String,
    /// In the order in which they were opened: what a pool stands on comes before it.
    pools: RefCell<Vec<Rc<OpenPool>>>,
}

impl PoolsBelow {
    /// None yet.
    pub(super) fn new(doing: &str) -> Self {
        Self { doing: doing.to_owned(), pools: RefCell::default() }
    }

    /// One more, opened last.
    pub(super) fn add(&self, pool: Rc<OpenPool>) {
        self.pools.borrow_mut().push(pool);
    }

    /// The one of this name.
    pub(super) fn find(&self, name: &str) -> Option<Rc<OpenPool>> {
        self.pools.borrow().iter().find(|pool| pool.name == name).cloned()
    }

    /// Begins their jobs: what has a pool open for long works on those below as well.
    pub(super) fn start_jobs(&self) {
        self.pools.borrow().iter().for_each(|open| open.pool.start_jobs());
    }

    /// Closes them, the last opened first. The first error is reported; all are closed.
    pub(crate) async fn close(&self) -> Result<()> {
        let mut result = Ok(());
        while let Some(pool) = { self.pools.borrow_mut().pop() } {
            let closed = pool.close().await;
            result = result.and(closed);
        }
        result
    }
}
