//! A new identity for a copy of all drives of a pool, so that it can be used beside the original.
//!
//! The copy is opened and closed once, which replays what a snapshot left open and makes all drives
//! agree. Then both slots of each drive are written again, with new identities of the pool and its
//! drives. Expected faults: copies that cannot be opened. After an interruption in between some
//! drives have the new identity and some have not; the copy is then to be made again.

use std::rc::Rc;

use stripewise_drive::{BufferPool, Context, Drive};

use crate::error::PoolError;
use crate::manifest::format::Manifest;
use crate::manifest::ids::{Id, IdSource, PoolId};
use crate::open::{open_drive, read_all};
use crate::superblock::assemble::{Worth, choose};
use crate::superblock::writer::{Target, Writer};
use crate::{OpenMode, Pool, PoolOptions};

/// Gives the pool on these drives a new identity, and each drive of it that takes part.
///
/// # Errors
/// Those of [`Pool::open`], and drives that refuse a write.
pub async fn give_new_identity(
    context: &Context,
    buffers: &BufferPool,
    drives: Vec<Rc<dyn Drive>>,
    options: PoolOptions,
) -> Result<PoolId, PoolError> {
    let seed = options.id_seed;
    let pool = Pool::open(context, buffers, drives.clone(), OpenMode::ReadWrite, options).await?;
    pool.close().await?;
    let read = read_all(context, &options, &drives, &mut Vec::new()).await?;
    let choice = choose(&read.found)?;
    let mut ids = IdSource::new(seed.map(|seed| !seed));
    let (id, mut manifest) = renamed(&choice.manifest, &mut ids);
    let mut targets = Vec::new();
    for (index, number, worth) in &choice.drives {
        let Some(record) = manifest.drive(*number).filter(|_| *worth == Worth::Current) else { continue };
        let open = open_drive(context, drives[*index].clone(), OpenMode::ReadWrite, &options, record.errors);
        let (id, capacity_bytes) = (record.id, record.capacity_bytes);
        let slot = read.slots.get(index).copied().unwrap_or(0);
        targets.push((Target { number: *number, id, capacity_bytes, member: open.member }, slot));
    }
    // One slot after the other: a drive whose write is interrupted has the other one.
    let mut written = Ok(());
    for turn in 0..2 {
        let tuning = &options.array.tuning;
        let writer = Writer::new(id, tuning.commit_piece_bytes, tuning.record_room_bytes);
        targets.iter().for_each(|(target, slot)| writer.found(target.number, (slot + turn) % 2));
        let all: Vec<Target> = targets.iter().map(|(target, _)| target.clone()).collect();
        manifest.generation += 1;
        written = write(&writer, &manifest, &all).await;
        if written.is_err() {
            break;
        }
        manifest.proven = manifest.generation;
    }
    for (target, _) in &targets {
        target.member.stop();
        target.member.release();
    }
    written.map(|()| id)
}

async fn write(writer: &Writer, manifest: &Manifest, targets: &[Target]) -> Result<(), PoolError> {
    let results = writer.commit(manifest, None, targets).await;
    let results = results.map_err(|too_large| PoolError::MetadataFull {
        needed_bytes: too_large.needed_bytes,
        room_bytes: too_large.room_bytes,
    })?;
    results.into_iter().try_for_each(|(_, result)| result.map_err(PoolError::from))
}

/// The pool's record under new identities; no host has it.
fn renamed(manifest: &Manifest, ids: &mut IdSource) -> (PoolId, Manifest) {
    let mut renamed = manifest.clone();
    let id = ids.next();
    let changed: Vec<(Id, Id)> = manifest.drives.iter().map(|drive| (drive.id, ids.next())).collect();
    let new = |old: Id| changed.iter().find(|(before, _)| *before == old).map_or(old, |(_, after)| *after);
    renamed.drives.iter_mut().for_each(|drive| drive.id = new(drive.id));
    for takeover in &mut renamed.care.takeovers {
        (takeover.drive, takeover.spare) = (new(takeover.drive), new(takeover.spare));
    }
    renamed.host = None;
    (id, renamed)
}
