//! Cleaning: live blocks of segments with little live data move to new segments.
//!
//! Victims are those of the highest benefit per cost, age × free / (1 + live) (Rosenblum and
//! Ousterhout 1992). Blocks that survived cleaning go to segments of their own, once and more
//! often apart, so that segments become either mostly dead or mostly live.
//!
//! A victim is freed only by a commit, when every block that was live in it is durable elsewhere.
//! Live means seen by a head or a kept snapshot in the *sealed* log: a newer version in the
//! clients' open segment does not count, as a crash may lose it. Faults expected: blocks that
//! cannot be read; their segment is kept.

use std::cmp::Reverse;
use std::rc::Rc;

use futures_util::future::join_all;
use smallvec::SmallVec;
use stripewise_array::Class;
use stripewise_drive::Buffer;

use crate::core::{Core, State};
use crate::error::LogError;
use crate::map::lineage::Birth;
use crate::mutation::{Mutation, is_chosen};
use crate::shape::BLOCK_BYTES;
use crate::steps::commit::{commit, held};
use crate::steps::look_up::{Versions, look_up, versions_in_runs};
use crate::steps::read::{read_stored, read_summary};
use crate::steps::seal::{next_place, seal};
use crate::summary::{Slot, UNUSED};
use crate::usage::{Content, Use};

/// Victims cleaned at once.
const VICTIMS: usize = 4;

/// Cleans some segments if space is needed; true if it did something.
pub(crate) async fn one_round(core: &Rc<Core>) -> Result<bool, LogError> {
    let victims = {
        let state = &mut *core.state.borrow_mut();
        if state.is_closing || state.failed.is_some() || state.available() >= core.limits.high {
            return Ok(false);
        }
        let held = held(state);
        let is_retirable = state.usage.retirable(|segment| held.contains(&segment)).next().is_some();
        let before = state.wanted;
        state.wanted.spill |= state.usage.held_by_holes() > 0 && state.map.frozen.is_none();
        state.wanted.commit |= is_retirable && state.retired == 0;
        if state.wanted != before {
            core.work.notify_all();
        }
        choose(core, state)
    };
    if victims.is_empty() {
        return nothing_to_gain(core).await;
    }
    let began_ns = core.context.now_ns();
    let moved_before = core.state.borrow().figures.moved_blocks;
    let results = join_all(victims.iter().map(|&(victim, sequence)| move_live(core, victim, sequence))).await;
    let state = &mut *core.state.borrow_mut();
    for (&(victim, sequence), result) in victims.iter().zip(results) {
        match result {
            Ok(()) => {
                state.usage.cleaned(victim, sequence);
                state.figures.cleaned += 1;
            }
            Err(LogError::Lost { .. }) => state.usage.damaged(victim, sequence),
            Err(error) => return Err(error),
        }
    }
    let payload = core.segments.payload as f64;
    let moved = (state.figures.moved_blocks - moved_before) as f64;
    let gained = (victims.len() as f64 - moved / payload).max(0.1);
    let gain_ns = (core.context.now_ns() - began_ns) as f64 / gained;
    state.gain_ns += (gain_ns - state.gain_ns) / 8.0;
    let cleaned_bytes = victims.len() as u64 * core.segments.payload * BLOCK_BYTES;
    state.cleaning.add(core.context.now_ns(), cleaned_bytes as f64);
    state.wanted.commit = true;
    core.work.notify_all();
    core.progress.notify_all();
    Ok(true)
}

/// The segments to clean next, each with the sequence of its use; none unless cleaning gains a
/// segment in the end.
fn choose(core: &Core, state: &State) -> Vec<(u32, u64)> {
    let now = state.plan.next_sequence();
    let payload = core.segments.payload as f64;
    let benefit = |used: &Use| {
        let live = f64::from(used.live);
        (payload - live) * (now - used.sequence) as f64 / (payload + live)
    };
    let mut candidates: Vec<(f64, u32)> = state
        .usage
        .iter()
        .filter(|(_, used)| used.content == Content::Data && !used.is_cleaned && !used.is_damaged)
        .filter(|(segment, used)| {
            u64::from(used.live) < core.segments.payload && !state.is_in_flight(*segment)
        })
        .map(|(segment, used)| (benefit(used), segment))
        .collect();
    let dead: u64 = candidates
        .iter()
        .map(|(_, segment)| core.segments.payload - u64::from(state.usage.of(*segment).live))
        .sum();
    if dead < core.segments.payload {
        return Vec::new();
    }
    candidates.sort_by(|one, other| other.0.total_cmp(&one.0));
    let chosen = candidates.into_iter().take(VICTIMS);
    chosen.map(|(_, segment)| (segment, state.usage.of(segment).sequence)).collect()
}

/// No segment has a block that is known to be dead: survivors in memory may hold victims, or a
/// merge finds dead blocks. True if one of them helped.
async fn nothing_to_gain(core: &Rc<Core>) -> Result<bool, LogError> {
    if core.state.borrow().usage.has_cleaned() {
        for which in 0..2 {
            seal_survivors(core, which, 1).await?;
        }
        commit(core).await?;
        return Ok(true);
    }
    let (may_merge, wanted) = {
        let state = core.state.borrow();
        let runs = state.map.runs.len() + usize::from(state.map.len_in_memory() > 0);
        (runs > 1 && state.available() * 2 <= core.limits.low + core.limits.high, state.full_merges_begun + 1)
    };
    if may_merge {
        core.want(|wanted| wanted.full_merge = true);
        core.when(|state| (state.full_merges >= wanted || state.is_closing).then_some(())).await?;
    }
    Ok(false)
}

/// A block that the cleaner moves.
struct Moved {
    place: u64,
    use_number: u32,
    slot: Slot,
    /// Number of spills when it was found to be live, and the versions that counted then.
    known: (u64, Versions),
}

/// Moves the live blocks of a segment.
async fn move_live(core: &Rc<Core>, victim: u32, sequence: u64) -> Result<(), LogError> {
    let Some((survived, live, pieces)) = read_live(core, victim, sequence).await? else { return Ok(()) };
    let blocks = pieces.iter().flat_map(|data| {
        let block = BLOCK_BYTES as usize;
        (0..data.len() / block).map(move |index| data.slice(index * block..(index + 1) * block))
    });
    let target = usize::from(survived > 0);
    for (moved, data) in live.into_iter().zip(blocks) {
        move_block(core, target, victim, moved, &data).await?;
    }
    Ok(())
}

/// Temperature of a victim, its live blocks, and their bytes in pieces.
type Live = (u8, Vec<Moved>, Vec<Buffer>);

/// Finds and reads the live blocks of a segment; `None` if it is in another use. The read ends
/// here: while it waits for a place to write to, the cleaner must not keep segments from becoming
/// free.
async fn read_live(core: &Rc<Core>, victim: u32, sequence: u64) -> Result<Option<Live>, LogError> {
    let _ticket = core.readers.begin();
    let survived = {
        let usage = &core.state.borrow().usage;
        if !usage.is_in_use(victim, sequence) {
            return Ok(None);
        }
        usage.of(victim).survived
    };
    let use_number = sequence as u32;
    let summary = read_summary(core, victim, sequence).await?;
    let mut live = Vec::new();
    for (number, &slot) in summary.slots.iter().enumerate().filter(|(_, slot)| slot.lba != UNUSED) {
        let place = core.segments.place(victim, number as u64);
        if is_chosen(Mutation::LiveBlockCleanedAway) && number % 8 == 7 {
            continue;
        }
        let mut moved = Moved { place, use_number, slot, known: (0, Versions::new()) };
        if look_up_again(core, &mut moved).await? {
            live.push(moved);
        }
    }
    let pieces = live.chunk_by(|one, next| next.place == one.place + 1);
    let reads = join_all(pieces.map(|piece| async move {
        let crcs: Vec<u32> = piece.iter().map(|moved| moved.slot.crc).collect();
        read_stored(core, piece[0].place, &crcs, Class::Foreground).await
    }))
    .await;
    let reads = reads.into_iter().collect::<Result<Vec<Buffer>, LogError>>()?;
    Ok(Some((survived, live, reads)))
}

/// Moves one block unless it died since it was looked up.
async fn move_block(
    core: &Rc<Core>,
    target: usize,
    victim: u32,
    mut moved: Moved,
    data: &Buffer,
) -> Result<(), LogError> {
    loop {
        {
            let state = &mut *core.state.borrow_mut();
            let Some(is_late) = liveness(state, &moved) else { return Ok(()) };
            // The runs have what they had, unless a table became one.
            if state.spills == moved.known.0 && state.survivors[target].has_room() {
                let slot = Slot { is_late, ..moved.slot };
                let kept = state.heads.kept();
                state.survivors[target].move_in(data, slot, victim, kept, &core.drives.buffers);
                return Ok(());
            }
        }
        seal_survivors(core, target, core.segments.payload as usize).await?;
        let _ticket = core.readers.begin();
        if !look_up_again(core, &mut moved).await? {
            return Ok(());
        }
    }
}

/// Asks the map for the versions of a block; false if it is dead.
async fn look_up_again(core: &Core, moved: &mut Moved) -> Result<bool, LogError> {
    let lba = moved.slot.lba;
    // One instant: a table that becomes a run in the meantime must not be missed.
    let (spills, in_memory, runs, only_view) = {
        let state = core.state.borrow();
        let in_memory: Versions = state.map.tables().flat_map(|table| table.versions(lba)).collect();
        (state.spills, in_memory, state.map.runs.clone(), state.heads.only_view().cloned())
    };
    let versions = match only_view {
        // The newest version is all that counts.
        Some(view) => look_up(core, lba, &view).await?.into_iter().collect(),
        None => in_memory.into_iter().chain(versions_in_runs(core, &runs, lba).await?).collect(),
    };
    moved.known = (spills, versions);
    Ok(liveness(&core.state.borrow(), moved).is_some())
}

/// `None` if no viewer sees the block at its place; else true if there is a newer version.
fn liveness(state: &State, moved: &Moved) -> Option<bool> {
    let lba = moved.slot.lba;
    let in_memory = state.map.tables().flat_map(|table| table.versions(lba));
    let mut versions: Versions = in_memory.chain(moved.known.1.iter().copied()).collect();
    // Stable: of one birth the newest part of the map comes first, and counts.
    versions.sort_by_key(|version| Reverse(version.birth));
    versions.dedup_by_key(|version| version.birth);
    let own = versions.iter().position(|version| version.is_at(moved.place, moved.use_number))?;
    let births: SmallVec<[Birth; 4]> = versions.iter().map(|version| version.birth).collect();
    let is_forgotten = own > 0 && is_chosen(Mutation::KeptBlockCleanedAway);
    (state.heads.kept().live(&births)[own] && !is_forgotten).then_some(own > 0)
}

/// Seals a survivors' segment that has at least this many blocks.
pub(crate) async fn seal_survivors(core: &Rc<Core>, which: usize, blocks: usize) -> Result<(), LogError> {
    let _turn = core.survivor_turn.acquire(1).await;
    if core.state.borrow().survivors[which].used() < blocks {
        return Ok(());
    }
    let place = next_place(core).await?;
    let state = &mut *core.state.borrow_mut();
    let open = state.take_survivors(which, &core.segments);
    seal(core, state, open, place);
    Ok(())
}
