//! An open pool and the pools below it, which open before it and close after it.

use std::cell::RefCell;
use std::rc::Rc;

use crate::failure::Result;
use crate::pools::open_pool::OpenPool;

/// The topmost pool of a stack and the pools below it.
#[derive(Clone)]
pub(crate) struct PoolStack {
    pub(super) top: Rc<OpenPool>,
    pub(super) below: Rc<PoolsBelow>,
}

impl PoolStack {
    /// Name of the pool on top.
    pub(super) fn name(&self) -> &str {
        &self.top.name
    }

    /// Closes the pool on top, then those below. Its lock is released last.
    pub(super) async fn close(self) -> Result<()> {
        let closed = self.top.close().await;
        closed.and(self.below.close().await)
    }

    /// Destroys the pool on top, and closes those below.
    pub(super) async fn destroy(self, wipe: bool) -> Result<()> {
        let destroyed = self.top.destroy(wipe).await;
        destroyed.and(self.below.close().await)
    }
}

/// Pools that are open because their volumes are drives of other pools.
pub(crate) struct PoolsBelow {
    /// The command that uses them, for error messages of other processes.
    pub(super) doing: String,
    /// In the order of opening: each pool comes after those below it.
    pools: RefCell<Vec<Rc<OpenPool>>>,
}

impl PoolsBelow {
    /// An empty list.
    pub(super) fn new(doing: &str) -> Self {
        Self { doing: doing.to_owned(), pools: RefCell::default() }
    }

    /// Adds the pool opened last.
    pub(super) fn add(&self, pool: Rc<OpenPool>) {
        self.pools.borrow_mut().push(pool);
    }

    /// Returns the pool of this name.
    pub(super) fn find(&self, name: &str) -> Option<Rc<OpenPool>> {
        self.pools.borrow().iter().find(|pool| pool.name == name).cloned()
    }

    /// Starts their jobs: a process that keeps a pool open also runs the jobs of those below.
    pub(super) fn start_jobs(&self) {
        self.pools.borrow().iter().for_each(|open| open.pool.start_jobs());
    }

    /// Closes all pools, the last opened first, and returns the first error.
    pub(crate) async fn close(&self) -> Result<()> {
        let mut result = Ok(());
        while let Some(pool) = { self.pools.borrow_mut().pop() } {
            let closed = pool.close().await;
            result = result.and(closed);
        }
        result
    }
}
