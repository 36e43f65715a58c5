//! Flushing: blocks of the open segment go to the staging area, and the segments that were sealed
//! are made durable.
//!
//! Callers that come while a flush runs wait for their turn; the first of them flushes for all.

use std::rc::Rc;

use futures_util::future::{join, join_all};
use stripewise_array::Class;
use stripewise_drive::{Buffer, Cause, IoRequest};

use crate::core::Core;
use crate::error::LogError;
use crate::mutation::{Mutation, is_chosen};
use crate::shape::BLOCK_BYTES;
use crate::staging::head_blocks;
use crate::steps::write::seal_open;
use crate::summary::{Kind, Summary, crc32c};

/// Makes everything durable that was acknowledged before.
pub(crate) async fn flush(core: &Rc<Core>) -> Result<(), LogError> {
    let _turn = core.flush_turn.acquire(1).await;
    core.check()?;
    let sealed = core.state.borrow().plan.next_sequence();
    let (staged, durable) = join(stage(core), core.make_durable(sealed)).await;
    // Blocks of a failed record count as staged: after an error no flush may succeed.
    staged.and(durable).inspect_err(|error| core.fail(error.clone()))
}

/// Stages the blocks of the open segment that are in no record yet.
pub(crate) async fn stage(core: &Rc<Core>) -> Result<(), LogError> {
    if is_chosen(Mutation::FlushWithoutStaging) {
        return Ok(());
    }
    let record = {
        let state = &mut *core.state.borrow_mut();
        if !state.open.is_unstaged() {
            return Ok(());
        }
        let (blocks, holes) = state.open.unstaged();
        let length = (head_blocks_of(blocks, holes) + blocks as u64) * BLOCK_BYTES;
        let room = state.staging.reserve(length);
        room.map(|(number, start)| {
            let (holes, blocks) = state.open.take_unstaged();
            let summary = Summary {
                kind: Kind::Staged,
                volume: core.identity.volume,
                sequence: number,
                staged_through: 0,
                slots: blocks.iter().map(|(slot, _)| *slot).collect(),
                holes,
            };
            state.figures.staged += 1;
            let blocks: Vec<Buffer> = blocks.into_iter().map(|(_, bytes)| bytes).collect();
            (start, encode(core, summary, &blocks))
        })
    };
    match record {
        Some((start, bytes)) => write_record(core, start, &bytes).await,
        None => {
            // No room: the segment itself is made durable.
            let number = core.state.borrow().open.number;
            seal_open(core, number).await?;
            let sealed = core.state.borrow().plan.next_sequence();
            core.make_durable(sealed).await
        }
    }
}

fn head_blocks_of(blocks: usize, holes: usize) -> u64 {
    let bytes = crate::summary::HEAD_BYTES + (blocks + holes) * crate::summary::ENTRY_BYTES;
    (bytes as u64).div_ceil(BLOCK_BYTES)
}

/// A record's bytes, which later writes to the open segment do not change.
fn encode(core: &Core, mut summary: Summary, blocks: &[Buffer]) -> Buffer {
    let block = BLOCK_BYTES as usize;
    let head = head_blocks(&summary) as usize * block;
    let bytes = core.drives.buffers.allocate(head + blocks.len() * block);
    for (index, data) in blocks.iter().enumerate() {
        let to = bytes.slice(head + index * block..head + (index + 1) * block);
        to.copy_from(data);
        summary.slots[index].crc = to.with(crc32c).unwrap_or_default();
    }
    bytes.slice(0..head).with_mut(|to| {
        to.fill(0);
        summary.encode(to);
    });
    bytes
}

/// Writes a record to as many members as may still be lost, and one more.
async fn write_record(core: &Core, start: u64, bytes: &Buffer) -> Result<(), LogError> {
    let first = {
        let staging = &mut core.state.borrow_mut().staging;
        staging.turn = (staging.turn + 1) % core.segments.geometry.width();
        staging.turn
    };
    let mut written = 0;
    let mut asked = Vec::new();
    loop {
        let tolerance = core.segments.geometry.fault_tolerance();
        let copies = (tolerance + 1).saturating_sub(core.drives.missing().len()).max(1);
        let members: Vec<usize> = core
            .drives
            .present_from(first)
            .into_iter()
            .filter(|member| !asked.contains(member))
            .take(copies.saturating_sub(written))
            .collect();
        if members.is_empty() {
            return core.check();
        }
        let at = core.segments.staging_start + start;
        let answers = join_all(members.iter().map(|&member| {
            let request = IoRequest::write(at, bytes.clone(), true).because(Cause::Journal);
            core.drives.ask(member, Class::Upkeep, request)
        }))
        .await;
        asked.extend(&members);
        written += answers.iter().filter(|answer| answer.is_ok()).count();
        let refused =
            members.iter().zip(answers).filter_map(|(&member, answer)| Some((member, answer.err()?)));
        core.drives.exclude(refused.collect()).await?;
    }
}
