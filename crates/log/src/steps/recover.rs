//! Recovery: the roots, then the segments after them as far as they are whole, then the staging
//! area.
//!
//! 1. The map's runs are those of the roots; the summaries of *recent* segments fill the table.
//! 2. The plan names the segments after the roots. Each is read as a whole and must match its
//!    summary, which must have the expected sequence; the first that does not ends the log. Those
//!    that are whole are written again, so that parity and copies agree with the data whatever the
//!    crash left of them.
//! 3. New roots make that durable. Sequence numbers that the old plan had are never used again, so
//!    segments beyond the end cannot come back later.
//! 4. Staged blocks that no segment has are written and sealed, then committed.
//!
//! Interrupted at any write, it begins from the same roots, or from those of step 3.

use std::rc::Rc;

use stripewise_array::Class;
use stripewise_drive::{Buffer, Cause, IoRequest};

use crate::core::{Core, State};
use crate::error::LogError;
use crate::map::run::{FENCES, Run, RunRoot, decode_fences};
use crate::mutation::{Mutation, is_chosen};
use crate::plan::Plan;
use crate::roots::codec::Roots;
use crate::shape::BLOCK_BYTES;
use crate::staging::{FoundRecord, Staging, find_records};
use crate::steps::commit::commit;
use crate::steps::read::read_summary;
use crate::steps::seal::apply;
use crate::steps::whole::{Whole, read_whole};
use crate::steps::write::{discard_range, seal_open, write_block};
use crate::summary::{Kind, Summary, UNUSED};
use crate::usage::{Content, Use};

/// Steps 1 to 3. The roots were decoded and checked; no task in the background runs yet. Returns
/// the last staging record that the segments contain.
pub(crate) async fn recover(core: &Rc<Core>, roots: &Roots) -> Result<u64, LogError> {
    load_roots(core, roots).await?;
    for &(sequence, segment) in &roots.recent {
        let summary = read_summary(core, segment, sequence).await?;
        let state = &mut *core.state.borrow_mut();
        replay_recent(core, state, roots, &summary, segment);
    }
    let staged_through = roll_forward(core, roots).await?;
    {
        let state = &mut *core.state.borrow_mut();
        let end = roots.next_sequence + roots.plan.len() as u64;
        state.plan = Plan::new(end, []);
        state.durable_before = end;
        state.staged_through = staged_through;
        let records = Staging::new(core.segments.staging_bytes, staged_through);
        state.staging = records;
    }
    core.drives.flush().await?;
    commit(core).await?;
    Ok(staged_through)
}

/// Takes over the state that the roots have.
async fn load_roots(core: &Core, roots: &Roots) -> Result<(), LogError> {
    let mut runs = Vec::new();
    for root in &roots.runs {
        runs.push(Rc::new(load_run(core, root).await?));
    }
    let state = &mut *core.state.borrow_mut();
    for run in &runs {
        for &(sequence, segment) in &run.root.segments {
            state.usage.sealed(segment, Content::Map, sequence);
        }
    }
    for (segment, data) in &roots.data {
        let used = state.usage.sealed(*segment, Content::Data, data.sequence);
        (used.survived, used.has_holes) = (data.survived, data.has_holes);
        state.usage.add_live(*segment, data.live);
    }
    state.map.runs = runs;
    state.rebuild = roots.rebuild;
    state.next_run = roots.next_run;
    Ok(())
}

/// Notes the births in a summary, before its contents are applied: those of a snapshot that was
/// not complete are in no roots.
fn found(state: &mut State, summary: &Summary) {
    let slots = summary.slots.iter().filter(|slot| slot.lba != UNUSED).map(|slot| slot.birth);
    state.heads.found(slots.chain(summary.holes.iter().map(|hole| hole.birth)));
}

/// Reads the fences of a run.
async fn load_run(core: &Core, root: &RunRoot) -> Result<Run, LogError> {
    let mut fences = Vec::new();
    for (index, &crc) in root.fence_crcs.iter().enumerate() {
        let place = root.place(&core.segments, root.pages + index as u64);
        let bytes = core.drives.read(place, &[crc], Class::Foreground).await?;
        let left = (root.pages as usize - index * FENCES).min(FENCES);
        fences.extend(decode_fences(&bytes.to_vec(), left));
    }
    Ok(Run { root: root.clone(), fences })
}

/// Brings a recent segment into the table. The roots' numbers of live blocks count it already,
/// except that an entry of the spilled table is not dead until a merge finds it; here it is found.
fn replay_recent(core: &Core, state: &mut State, roots: &Roots, summary: &Summary, segment: u32) {
    let kept: Use = *state.usage.of(segment);
    let mut dead = Vec::new();
    found(state, summary);
    apply(state, &core.segments, summary, segment, &mut |block| dead.push(block));
    state.usage.set(segment, kept);
    let is_frozen = |use_number: u32| {
        let behind = (roots.frozen_through as u32).wrapping_sub(use_number);
        roots.frozen_through > 0 && behind < u32::MAX / 2
    };
    for block in dead {
        if is_frozen(block.use_number) && summary.sequence > roots.frozen_through {
            state.usage.dead(core.segments.segment_of(block.place), &block);
        }
    }
}

/// Applies the planned segments that were written. Returns the last staging record that they have.
async fn roll_forward(core: &Core, roots: &Roots) -> Result<u64, LogError> {
    let mut staged_through = roots.staged_through;
    for (sequence, &segment) in (roots.next_sequence..).zip(&roots.plan) {
        let Some(Whole { summary, data, .. }) = whole_segment(core, sequence, segment).await? else { break };
        core.drives.write_segment(segment, &data, Class::Foreground).await?;
        if summary.kind == Kind::Map {
            continue;
        }
        staged_through = staged_through.max(summary.staged_through);
        let state = &mut *core.state.borrow_mut();
        let mut dead = Vec::new();
        found(state, &summary);
        apply(state, &core.segments, &summary, segment, &mut |block| dead.push(block));
        for block in dead {
            state.usage.dead(core.segments.segment_of(block.place), &block);
        }
    }
    Ok(staged_through)
}

/// A segment with its data, if it is whole and of this sequence.
async fn whole_segment(core: &Core, sequence: u64, segment: u32) -> Result<Option<Whole>, LogError> {
    let is_expected = |found: &Summary| found.sequence == sequence || is_chosen(Mutation::OlderUseOfSegment);
    let whole = read_whole(core, segment, is_expected, Class::Foreground).await?;
    Ok(whole.filter(|whole| whole.lost.is_empty() || is_chosen(Mutation::TornSegmentCounts)))
}

/// Step 4: writes the staged blocks that no segment has, and makes them durable in segments.
pub(crate) async fn apply_staged(core: &Rc<Core>, staged_through: u64) -> Result<(), LogError> {
    let mut areas = Vec::new();
    for member in core.drives.present_from(0) {
        let area = core.drives.buffers.allocate_zeroed(core.segments.staging_bytes as usize);
        let request = IoRequest::read(core.segments.staging_start, area.clone()).because(Cause::Journal);
        if core.drives.ask(member, Class::Foreground, request).await.is_ok() {
            areas.push(area);
        }
    }
    let mut records: Vec<(Buffer, FoundRecord)> = Vec::new();
    for area in areas {
        let found = area.with(|bytes| find_records(bytes, core.identity.volume)).unwrap_or_default();
        records.extend(found.into_iter().map(|record| (area.clone(), record)));
    }
    records.retain(|(_, record)| record.summary.sequence > staged_through);
    records.sort_by_key(|(_, record)| record.summary.sequence);
    records.dedup_by_key(|(_, record)| record.summary.sequence);
    let Some((_, last)) = records.last() else { return Ok(()) };
    let last = last.summary.sequence;
    let applied = |through: u64| {
        core.state.borrow_mut().staging = Staging::new(core.segments.staging_bytes, through);
    };
    for (area, FoundRecord { summary, first_block }) in &records {
        // A segment that is sealed before the record's end does not contain the record.
        applied(summary.sequence - 1);
        found(&mut core.state.borrow_mut(), summary);
        for &hole in &summary.holes {
            while !discard_range(core, hole).await? {}
        }
        for (index, slot) in summary.slots.iter().enumerate() {
            let start = first_block + index * BLOCK_BYTES as usize;
            let block = area.slice(start..start + BLOCK_BYTES as usize);
            while !write_block(core, slot.lba, &block, slot.birth).await? {}
        }
    }
    applied(last);
    let number = core.state.borrow().open.number;
    seal_open(core, number).await?;
    let sealed = core.state.borrow().plan.next_sequence();
    core.make_durable(sealed).await?;
    commit(core).await
}
