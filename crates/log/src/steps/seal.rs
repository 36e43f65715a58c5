//! Sealing: a filled segment gets its place in the log and is written.
//!
//! At this instant, without waiting, the segment's blocks enter the map and count as the truth.
//! Until the segment is written, reads of it are served from memory. Blocks that the cleaner is
//! moving and that this segment has newer are dropped here, so that the order of the sequence is
//! the order of the versions of each block.

use std::rc::Rc;

use stripewise_array::Class;
use stripewise_drive::Buffer;

use crate::core::{Core, InFlight, State};
use crate::error::LogError;
use crate::map::entry::Block;
use crate::open_segment::OpenSegment;
use crate::shape::Segments;
use crate::summary::{Kind, Summary, UNUSED};
use crate::usage::Content;

/// Waits until a segment may be written and takes its place; it must be sealed without waiting.
pub(crate) async fn next_place(core: &Core) -> Result<(u64, u32), LogError> {
    loop {
        core.check()?;
        let (place, is_new) = {
            let state = &mut *core.state.borrow_mut();
            let place = match state.in_flight.len() < core.limits.in_flight {
                true => state.plan.take(),
                false => None,
            };
            let is_short = state.plan.writable() * 2 < core.limits.planned;
            let is_due = is_short && state.available() > state.plan.writable() + state.retired;
            let is_new = is_due && !state.wanted.commit;
            state.wanted.commit |= is_due;
            (place, is_new)
        };
        let progress = core.progress.wait();
        // Only once: a task that finds nothing to do must not be woken for ever.
        if is_new {
            core.work.notify_all();
        }
        match place {
            Some(place) => return Ok(place),
            None => progress.await,
        }
    }
}

/// Seals a segment of data at its place.
pub(crate) fn seal(core: &Rc<Core>, state: &mut State, open: OpenSegment, place: (u64, u32)) {
    let (sequence, segment) = place;
    // Staged blocks are in the clients' segment: one of survivors says nothing new of them.
    let through = if open.is_of_clients() { state.staging.last() } else { state.staged_through };
    let volume = core.identity.volume;
    let (summary, data) = open.seal(volume, sequence, through, state.epoch, &core.drives.buffers);
    let blocks = summary.slots.iter().filter(|slot| slot.lba != UNUSED).count() as u64;
    if summary.kind == Kind::Data(0) {
        state.staging.sealed(sequence);
        state.staged_through = through;
        for survivors in &mut state.survivors {
            summary
                .slots
                .iter()
                .for_each(|slot| survivors.drop_range(slot.lba, u64::from(slot.lba != UNUSED)));
            summary.holes.iter().for_each(|&(lba, count)| survivors.drop_range(lba, count));
        }
        state.figures.new_blocks += blocks;
    } else {
        state.figures.moved_blocks += blocks;
    }
    let mut dead = Vec::new();
    apply(state, &core.segments, &summary, segment, &mut |block| dead.push(block));
    for block in dead {
        state.usage.dead(core.segments.segment_of(block.place), &block);
    }
    start(core, state, sequence, segment, data);
}

/// Brings the contents of a data segment into the map. Passes each entry of the table that it
/// replaces to `replaced`.
pub(crate) fn apply(
    state: &mut State,
    segments: &Segments,
    summary: &Summary,
    segment: u32,
    replaced: &mut impl FnMut(Block),
) {
    let Kind::Data(survived) = summary.kind else { panic!("only data is applied") };
    for &(lba, count) in &summary.holes {
        state.map.table.put_hole(lba, count, replaced);
    }
    let mut live = 0;
    for (slot, entry) in summary.slots.iter().enumerate().filter(|(_, entry)| entry.lba != UNUSED) {
        let block = Block {
            place: segments.place(segment, slot as u64),
            crc: entry.crc,
            use_number: summary.sequence as u32,
            birth: entry.birth,
        };
        state.map.table.put_block(entry.lba, block).into_iter().for_each(&mut *replaced);
        live += 1;
    }
    let used = state.usage.sealed(segment, Content::Data, summary.sequence);
    used.survived = survived;
    used.has_holes = !summary.holes.is_empty();
    state.usage.add_live(segment, live);
    state.recent.push((summary.sequence, segment));
}

/// Starts writing a sealed segment of any kind.
pub(crate) fn start(core: &Rc<Core>, state: &mut State, sequence: u64, segment: u32, data: Buffer) {
    state.in_flight.insert(sequence, InFlight { segment, data: data.clone() });
    state.figures.segments += 1;
    let writer = core.clone();
    core.context.spawn(async move {
        match writer.drives.write_segment(segment, &data, Class::Foreground).await {
            Ok(()) => drop(writer.state.borrow_mut().in_flight.remove(&sequence)),
            Err(error) => writer.fail(error),
        }
        writer.progress.notify_all();
    });
    core.progress.notify_all();
}
