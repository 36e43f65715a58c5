//! Snapshots, rollback and clones: an instant each, then a commit that makes it durable.
//!
//! Nothing is copied, so the cost does not depend on the volume's size. A snapshot is taken at
//! once; what its head writes from then on has a later birth. It enters the roots when all that it
//! contains is durable, so after a crash it is there with exactly its contents, or not at all. What
//! the last durable roots keep is not given up before roots without it are durable.
//!
//! Faults expected: names that exist or do not, and no numbers left.

use std::rc::Rc;

use crate::core::Core;
use crate::error::LogError;
use crate::heads::Heads;
use crate::mutation::{Mutation, is_chosen};
use crate::steps::commit::commit;
use crate::steps::flush::flush;

/// Takes a snapshot of a head.
pub(crate) async fn create(core: &Rc<Core>, head: u32, name: &str) -> Result<(), LogError> {
    let _turn = core.snapshot_turn.acquire(1).await;
    core.check()?;
    core.state.borrow_mut().heads.begin_snapshot(head, name)?;
    let pending = Pending { core };
    if !is_chosen(Mutation::SnapshotBeforeItsData) {
        flush(core).await?;
    }
    core.state.borrow_mut().heads.complete_snapshot();
    drop(pending);
    commit(core).await
}

/// Drops the pending snapshot unless it was completed.
struct Pending<'a> {
    core: &'a Core,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.core.state.borrow_mut().heads.drop_snapshot();
    }
}

/// Deletes a snapshot. Its space becomes free as merges and the cleaner find it.
pub(crate) async fn delete(core: &Rc<Core>, head: u32, name: &str) -> Result<(), LogError> {
    change(core, |heads| heads.delete_snapshot(head, name)).await
}

/// Makes the contents of a snapshot those of its head. Writes wait until that is durable.
pub(crate) async fn roll_back(core: &Rc<Core>, head: u32, name: &str) -> Result<(), LogError> {
    change(core, |heads| heads.roll_back(head, name)).await
}

/// Adds a head with the contents of a snapshot; returns its number.
pub(crate) async fn clone(core: &Rc<Core>, head: u32, name: &str) -> Result<u32, LogError> {
    change(core, |heads| heads.add_clone(head, name)).await
}

/// Deletes a clone with its snapshots.
pub(crate) async fn delete_clone(core: &Rc<Core>, head: u32) -> Result<(), LogError> {
    change(core, |heads| heads.delete_clone(head)).await
}

/// Changes heads and snapshots, and makes that durable.
async fn change<T>(
    core: &Rc<Core>,
    change: impl FnOnce(&mut Heads) -> Result<T, LogError>,
) -> Result<T, LogError> {
    let _turn = core.snapshot_turn.acquire(1).await;
    core.check()?;
    let result = change(&mut core.state.borrow_mut().heads)?;
    if is_chosen(Mutation::SnapshotGivenUpBeforeRoots) {
        core.state.borrow_mut().heads.faded();
    }
    // Not dropped in between: this task ends it, whatever becomes of the caller.
    let committed = core.context.spawn(finish(core.clone())).await;
    committed.map(|()| result)
}

async fn finish(core: Rc<Core>) -> Result<(), LogError> {
    commit(&core).await?;
    core.state.borrow_mut().heads.faded();
    core.progress.notify_all();
    Ok(())
}
