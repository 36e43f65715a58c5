//! Sealing: a filled segment gets its place in the log and is written.
//!
//! At this instant, without waiting, the segment's blocks enter the map and count as the truth.
//! Until the segment is written, reads of it are served from memory. Blocks that the cleaner is
//! moving and that this segment has newer are dropped here, or are late if a snapshot keeps them:
//! of one birth, the order of the sequence is the order of the versions of each block.

use std::rc::Rc;

use stripewise_array::Class;
use stripewise_drive::Buffer;

use crate::core::{Core, InFlight, State};
use crate::error::LogError;
use crate::map::entry::{Block, Entry, Value};
use crate::open_segment::OpenSegment;
use crate::shape::Segments;
use crate::summary::{Kind, Slot, Summary, UNUSED};
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
    let (summary, data) = open.seal(volume, sequence, through, &core.drives.buffers);
    let blocks = summary.slots.iter().filter(|slot| slot.lba != UNUSED).count() as u64;
    if summary.kind == Kind::Data(0) {
        state.staging.sealed(sequence);
        state.staged_through = through;
        let kept = state.heads.kept();
        for survivors in &mut state.survivors {
            let slots = summary.slots.iter().filter(|slot| slot.lba != UNUSED);
            slots.for_each(|slot| survivors.overtaken(slot.lba, 1, slot.birth, kept));
            let holes = summary.holes.iter();
            holes.for_each(|hole| survivors.overtaken(hole.lba, hole.count, hole.birth, kept));
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

/// Brings the contents of a data segment into the map. Passes each block of the table that it
/// replaces, or that no viewer sees any more, to `replaced`.
pub(crate) fn apply(
    state: &mut State,
    segments: &Segments,
    summary: &Summary,
    segment: u32,
    replaced: &mut impl FnMut(Block),
) {
    let Kind::Data(survived) = summary.kind else { panic!("only data is applied") };
    let kept = state.heads.kept();
    for hole in &summary.holes {
        state.map.table.put(hole.entry(), kept, replaced);
    }
    let mut live = 0;
    for (slot, entry) in summary.slots.iter().enumerate().filter(|(_, entry)| entry.lba != UNUSED) {
        let block = Block {
            place: segments.place(segment, slot as u64),
            crc: entry.crc,
            use_number: summary.sequence as u32,
        };
        let Slot { lba, birth, is_late, .. } = *entry;
        let entry = Entry { lba, count: 1, birth, is_late, value: Value::Block(block) };
        state.map.table.put(entry, kept, replaced);
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
