//! Snapshots, rollback and clones: an instant each, then a commit that makes it durable.
//!
//! Nothing is copied, so the cost does not depend on the volume's size. A snapshot is taken at
//! once; what its head writes from then on has a later birth. It enters the roots when all that it
//! contains is durable, so after a crash it is there with exactly its contents, or not at all. What
//! the last durable roots keep is not given up before roots without it are durable.
//!
//! Faults expected: names that exist or do not, and no numbers left.

use std::rc::Rc;

use futures_util::future::join_all;

use crate::core::Core;
use crate::error::LogError;
use crate::heads::Heads;
use crate::mutation::{Mutation, is_chosen};
use crate::sizes::head_room_bytes;
use crate::steps::commit::commit;
use crate::steps::flush::flush;

/// Snapshot to be taken.
pub(crate) struct NewSnapshot<'a> {
    pub(crate) core: &'a Rc<Core>,
    pub(crate) head: u32,
    pub(crate) name: &'a str,
    pub(crate) created_unix_ms: u64,
}

/// Takes snapshots of one instant, all or none unless power is cut. Those of one log are made
/// durable together, those of several logs one after the other.
pub(crate) async fn create(all: &[NewSnapshot<'_>]) -> Result<(), LogError> {
    let mut cores: Vec<&Rc<Core>> = Vec::new();
    for new in all {
        if !cores.iter().any(|core| Rc::ptr_eq(core, new.core)) {
            cores.push(new.core);
        }
    }
    let mut turns = Vec::new();
    for core in &cores {
        turns.push(core.snapshot_turn.acquire(1).await);
    }
    let pending = Pending { cores: &cores };
    // One instant: nothing is waited for.
    for &NewSnapshot { core, head, name, created_unix_ms } in all {
        core.check()?;
        let room_bytes = room_bytes(core);
        core.state.borrow_mut().heads.begin_snapshot(head, name, created_unix_ms, room_bytes)?;
    }
    if !is_chosen(Mutation::SnapshotBeforeItsData) {
        let flushed = join_all(cores.iter().map(|core| flush(core))).await;
        flushed.into_iter().collect::<Result<(), LogError>>()?;
    }
    cores.iter().for_each(|core| core.state.borrow_mut().heads.complete_snapshots());
    drop(pending);
    for core in &cores {
        if let Err(error) = commit(core).await {
            take_back(all).await;
            return Err(error);
        }
    }
    Ok(())
}

/// Room for heads and snapshots in the roots, bytes.
fn room_bytes(core: &Core) -> u64 {
    head_room_bytes(core.roots.room_bytes(), core.segments.count)
}

/// Drops pending snapshots unless they were completed.
struct Pending<'a> {
    cores: &'a [&'a Rc<Core>],
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.cores.iter().for_each(|core| core.state.borrow_mut().heads.drop_snapshots());
    }
}

/// Deletes snapshots of which one could not be made durable. A log that works makes that durable.
async fn take_back(all: &[NewSnapshot<'_>]) {
    for new in all {
        let gone = new.core.state.borrow_mut().heads.delete_snapshots(new.head, &[new.name.to_owned()]);
        if gone.is_ok() && new.core.check().is_ok() {
            // One that refuses fails as a whole; its roots may have the snapshot.
            let _ = finish(new.core.clone()).await;
        }
    }
}

/// Deletes snapshots, all or none. Their space becomes free as merges and the cleaner find it.
pub(crate) async fn delete(core: &Rc<Core>, head: u32, names: &[String]) -> Result<(), LogError> {
    change(core, |heads| heads.delete_snapshots(head, names)).await
}

/// Makes the contents of a snapshot those of its head, and deletes other snapshots of it, together.
/// Writes wait until that is durable.
pub(crate) async fn roll_back(
    core: &Rc<Core>,
    head: u32,
    name: &str,
    deleted: &[String],
) -> Result<(), LogError> {
    change(core, |heads| {
        if deleted.iter().any(|other| other == name) {
            return Err(LogError::NoSuchSnapshot { name: name.into() });
        }
        // Nothing is deleted unless all of it can be done.
        deleted.iter().try_for_each(|other| heads.snapshot(head, other).map(drop))?;
        heads.roll_back(head, name, room_bytes(core))?;
        heads.delete_snapshots(head, deleted)
    })
    .await
}

/// Adds a head with the contents of a snapshot; returns its number.
pub(crate) async fn clone(core: &Rc<Core>, head: u32, name: &str) -> Result<u32, LogError> {
    change(core, |heads| heads.add_clone(head, name, room_bytes(core))).await
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
