//! Writing: blocks go into the clients' open segment, which is sealed when it is full.
//!
//! A write is acknowledged from memory, as by a drive with a cache; it is durable after a flush.
//! Faults expected: a volume that is full.

use std::rc::Rc;

use stripewise_drive::Buffer;

use crate::core::Core;
use crate::error::LogError;
use crate::heads::Head;
use crate::map::entry::Entry;
use crate::map::lineage::Birth;
use crate::shape::BLOCK_BYTES;
use crate::steps::look_up::look_up;
use crate::steps::pace::pace;
use crate::steps::seal::{next_place, seal};
use crate::summary::Hole;

/// Merges that a write waits for before the volume counts as full.
const EXACT_ATTEMPTS: usize = 8;

/// Writes whole blocks from `lba` on.
pub(crate) async fn write(core: &Rc<Core>, head: u32, lba: u64, data: &Buffer) -> Result<(), LogError> {
    let blocks = data.len() as u64 / BLOCK_BYTES;
    for index in 0..blocks {
        admit(core, head, lba + index).await?;
        let start = (index * BLOCK_BYTES) as usize;
        let block = data.slice(start..start + BLOCK_BYTES as usize);
        loop {
            let birth = birth(core, head).await?;
            if write_block(core, lba + index, &block, birth).await? {
                break;
            }
        }
    }
    Ok(())
}

/// Birth of a head's writes, once no rollback makes them wait.
async fn birth(core: &Core, head: u32) -> Result<Birth, LogError> {
    core.when(|state| state.heads.writes_at(head).transpose()).await?
}

/// Writes a block, if the open segment has room; else makes room, and returns false.
pub(crate) async fn write_block(
    core: &Rc<Core>,
    lba: u64,
    block: &Buffer,
    birth: Birth,
) -> Result<bool, LogError> {
    core.check()?;
    let full = {
        let state = &mut *core.state.borrow_mut();
        if state.open.has_room() {
            state.open.write(lba, block, birth, state.heads.kept(), &core.drives.buffers);
            state.figures.client_blocks += 1;
            return Ok(true);
        }
        state.open.number
    };
    seal_open(core, full).await?;
    Ok(false)
}

/// Discards blocks: they read as zeros.
pub(crate) async fn discard(core: &Rc<Core>, head: u32, lba: u64, count: u64) -> Result<(), LogError> {
    loop {
        let birth = birth(core, head).await?;
        if discard_range(core, Hole { lba, count, birth }).await? {
            return Ok(());
        }
    }
}

/// Discards a range, if the open segment has room; else makes room, and returns false.
pub(crate) async fn discard_range(core: &Rc<Core>, hole: Hole) -> Result<bool, LogError> {
    core.check()?;
    let full = {
        let state = &mut *core.state.borrow_mut();
        if state.open.has_room() {
            state.open.discard(hole, state.heads.kept());
            return Ok(true);
        }
        state.open.number
    };
    seal_open(core, full).await?;
    Ok(false)
}

/// Seals the clients' segment of this number, unless another caller has.
pub(crate) async fn seal_open(core: &Rc<Core>, number: u64) -> Result<(), LogError> {
    let _turn = core.seal_turn.acquire(1).await;
    let is_done = {
        let open = &core.state.borrow().open;
        open.number != number || open.is_empty()
    };
    if is_done {
        return Ok(());
    }
    pace(core).await?;
    let place = next_place(core).await?;
    let state = &mut *core.state.borrow_mut();
    let open = state.take_open(&core.segments);
    seal(core, state, open, place);
    Ok(())
}

/// Refuses a block that has no room. The number of live blocks is an upper bound, so near the
/// limit the map is asked, and merged once to make the number exact.
async fn admit(core: &Rc<Core>, head: u32, lba: u64) -> Result<(), LogError> {
    let limit_blocks = core.limits.client_blocks;
    let (view, birth) = {
        let heads = &core.state.borrow().heads;
        let Head { tip, capacity_blocks, .. } = *heads.head(head)?;
        if heads.kept().is_single() && capacity_blocks <= limit_blocks {
            return Ok(());
        }
        (heads.view(head)?.clone(), tip)
    };
    let live_blocks = || {
        let state = core.state.borrow();
        state.usage.live() + state.open.used() as u64
    };
    if live_blocks() < limit_blocks {
        return Ok(());
    }
    // A block that is replaced by this one needs no space of its own.
    let is_replaced = |entry: Entry| {
        let heads = &core.state.borrow().heads;
        entry.block().is_some() && (entry.birth == birth || !heads.kept().live(&[birth, entry.birth])[1])
    };
    let stored = {
        let _ticket = core.readers.begin();
        let open = core.state.borrow().open.newest(lba, &view);
        match open {
            Some(entry) => Some(entry),
            None => look_up(core, lba, &view).await?,
        }
    };
    if stored.is_some_and(is_replaced) {
        return Ok(());
    }
    // The open segment may replace blocks that count twice until it is sealed.
    let number = core.state.borrow().open.number;
    seal_open(core, number).await?;
    if live_blocks() < limit_blocks {
        return Ok(());
    }
    // Blocks that are being moved count twice until a merge or a commit that begins later.
    for _ in 0..EXACT_ATTEMPTS {
        let wanted = core.state.borrow().full_merges_begun + 1;
        core.want(|wanted| wanted.full_merge = true);
        core.when(|state| (state.full_merges >= wanted).then_some(())).await?;
        if live_blocks() < limit_blocks {
            return Ok(());
        }
    }
    let snapshots = core.state.borrow().heads.snapshot_count();
    Err(LogError::NoSpace { live_blocks: live_blocks(), limit_blocks, snapshots })
}
