//! Spilling the table as a run, and merging runs.
//!
//! Both write map segments through the plan, like data. A run counts once it is durable; an
//! interrupted one leaves segments that nothing refers to. A merge finds the blocks that newer
//! entries replaced and no snapshot keeps; they are counted as dead together with the exchange of
//! the runs.

use std::collections::VecDeque;
use std::rc::Rc;

use smallvec::SmallVec;
use stripewise_array::Class;
use stripewise_drive::Buffer;

use crate::core::{Core, State};
use crate::error::LogError;
use crate::map::entry::{Block, Entry};
use crate::map::lineage::{Birth, Kept};
use crate::map::merge::{Merge, Step};
use crate::map::page::{PAGE_ENTRIES, encode_page};
use crate::map::run::{FENCES, Fence, Run, RunRoot, encode_fences};
use crate::map::runs_to_merge;
use crate::map::table::Table;
use crate::mutation::{Mutation, is_chosen};
use crate::shape::BLOCK_BYTES;
use crate::steps::commit::commit;
use crate::steps::look_up::read_pages;
use crate::steps::seal::{next_place, start};
use crate::summary::{Kind, Slot, Summary, crc32c};
use crate::usage::Content;

/// Pages that a merge reads of a run at a time.
const READ_PAGES: u64 = 32;
/// Entries that a merge takes of a table at a time.
pub(crate) const TABLE_ENTRIES: usize = 4096;

/// Does what is due; true if there was something.
pub(crate) async fn one_round(core: &Rc<Core>) -> Result<bool, LogError> {
    let (spill_due, full_merge) = {
        let state = &mut *core.state.borrow_mut();
        let is_full = state.map.table.len() >= core.limits.table_entries
            || state.recent.len() >= core.limits.recent
            || state.wanted.spill
            || state.wanted.full_merge;
        let full_merge = std::mem::take(&mut state.wanted.full_merge);
        state.full_merges_begun += u64::from(full_merge);
        (is_full && !state.is_closing, full_merge)
    };
    if spill_due {
        spill(core).await?;
    }
    let count = {
        let state = core.state.borrow();
        let sizes: Vec<u64> = state.map.runs.iter().map(|run| run.root.entries).collect();
        match full_merge {
            true => Some(sizes.len()).filter(|&count| count > 1),
            false => runs_to_merge(&sizes).filter(|_| !state.is_closing),
        }
    };
    if let Some(count) = count {
        merge_newest(core, count).await?;
    }
    let has_worked = spill_due || count.is_some() || full_merge;
    if full_merge {
        core.state.borrow_mut().full_merges += 1;
    }
    if has_worked {
        commit(core).await?;
        core.progress.notify_all();
    }
    Ok(has_worked)
}

/// Writes the table as the newest run.
async fn spill(core: &Rc<Core>) -> Result<(), LogError> {
    let (table, id, mut merge) = {
        let state = &mut *core.state.borrow_mut();
        state.wanted.spill = false;
        state.frozen_through = state.plan.next_sequence().saturating_sub(1);
        state.next_run += 1;
        // Below the oldest run everything is unmapped, so holes need no entries.
        let is_oldest = state.map.runs.is_empty();
        let drops_holes = is_oldest && !state.has_late_survivors();
        let merge = Merge::new(1, state.heads.kept().clone(), is_oldest, drops_holes);
        (state.map.freeze(), state.next_run, merge)
    };
    let mut writer = RunWriter::new(core, id);
    let mut next = 0;
    let dead = merge_into(&mut writer, &mut merge, async |_| Ok(some_of(&table, &mut next))).await?;
    let run = writer.finish().await?;
    let state = &mut *core.state.borrow_mut();
    bury(core, state, &dead);
    state.map.frozen = None;
    if run.root.entries > 0 {
        state.map.runs.insert(0, Rc::new(run));
    }
    state.spills += 1;
    let through = state.frozen_through;
    state.usage.holes_spilled(through);
    state.recent.retain(|(sequence, _)| *sequence > through);
    Ok(())
}

/// Merges the newest runs into one.
async fn merge_newest(core: &Rc<Core>, count: usize) -> Result<(), LogError> {
    let (runs, id, mut merge) = {
        let state = &mut *core.state.borrow_mut();
        state.next_run += 1;
        let runs = state.map.runs[..count].to_vec();
        let is_oldest = count == state.map.runs.len();
        // A late entry is recognised as old by the newer version behind it, which may be a hole.
        let has_late = state.has_late_survivors() || state.map.tables().any(Table::has_late);
        let merge = Merge::new(count, state.heads.kept().clone(), is_oldest, is_oldest && !has_late);
        (runs, state.next_run, merge)
    };
    let mut writer = RunWriter::new(core, id);
    let mut next_page = vec![0; count];
    let feed = async |source: usize| read_some(core, &runs[source], &mut next_page[source]).await;
    let mut dead = merge_into(&mut writer, &mut merge, feed).await?;
    let run = writer.finish().await?;
    if is_chosen(Mutation::DeadListForgotten) {
        dead.clear();
    }
    install(core, count, run, &dead);
    Ok(())
}

/// Merges into a run; `feed` gives the next entries of a source, and none at its end. Returns the
/// blocks that are dead.
async fn merge_into(
    writer: &mut RunWriter<'_>,
    merge: &mut Merge,
    mut feed: impl AsyncFnMut(usize) -> Result<VecDeque<Entry>, LogError>,
) -> Result<Vec<Block>, LogError> {
    let mut dead = Vec::new();
    loop {
        match merge.step() {
            Step::Entry(entry) => writer.push(entry).await?,
            Step::Dead(block) => dead.push(block),
            Step::Feed(source) => {
                let entries = feed(source).await?;
                merge.sources[source].is_at_end = entries.is_empty();
                merge.sources[source].entries.extend(entries);
            }
            Step::End => return Ok(dead),
        }
    }
}

/// The next entries of a table, all versions of each range; none at its end.
pub(crate) fn some_of(table: &Table, next: &mut u64) -> VecDeque<Entry> {
    let mut entries: VecDeque<Entry> = VecDeque::new();
    for entry in table.from(*next) {
        let is_same_range = entries.back().is_some_and(|last| last.lba == entry.lba);
        if entries.len() >= TABLE_ENTRIES && !is_same_range {
            break;
        }
        entries.push_back(entry);
    }
    *next = entries.back().map_or(*next, |last| last.lba + 1);
    entries
}

fn bury(core: &Core, state: &mut State, dead: &[Block]) {
    for block in dead {
        state.usage.dead(core.segments.segment_of(block.place), block);
    }
}

/// The next entries of a run; none at its end.
async fn read_some(core: &Core, run: &Run, page: &mut u64) -> Result<VecDeque<Entry>, LogError> {
    let in_segment = core.segments.payload - *page % core.segments.payload;
    let count = READ_PAGES.min(in_segment).min(run.root.pages - *page);
    if count == 0 {
        return Ok(VecDeque::new());
    }
    let entries = read_pages(core, run, *page, count, Class::Background).await?;
    *page += count;
    Ok(entries.into())
}

/// Puts a run in the place of the newest `count`.
fn install(core: &Core, count: usize, run: Run, dead: &[Block]) {
    let state = &mut *core.state.borrow_mut();
    bury(core, state, dead);
    for old in state.map.runs.drain(..count) {
        state.usage.run_replaced(&old.root.segments);
    }
    if run.root.entries > 0 {
        state.map.runs.insert(0, Rc::new(run));
    }
    state.figures.merges += 1;
}

/// Writes a run.
struct RunWriter<'a> {
    core: &'a Rc<Core>,
    run: Run,
    /// Entries of the page that is being filled.
    entries: Vec<Entry>,
    /// Segment that is being filled, and its pages.
    segment: Option<Buffer>,
    slots: Vec<Slot>,
    /// Heads as viewers, if there are others.
    heads: Option<Kept>,
    /// Versions of the range that is being written: birth, and true for a block.
    range: SmallVec<[(Birth, bool); 4]>,
    range_start: u64,
}

impl<'a> RunWriter<'a> {
    fn new(core: &'a Rc<Core>, id: u64) -> Self {
        let run = Run { root: RunRoot { id, ..RunRoot::default() }, fences: Vec::new() };
        let heads = {
            let heads = &core.state.borrow().heads;
            (!heads.kept().is_single()).then(|| heads.seen_by_heads().clone())
        };
        Self {
            core,
            run,
            entries: Vec::new(),
            segment: None,
            slots: Vec::new(),
            heads,
            range: SmallVec::new(),
            range_start: 0,
        }
    }

    async fn push(&mut self, entry: Entry) -> Result<(), LogError> {
        if self.entries.len() == PAGE_ENTRIES {
            // A range goes to the next page as a whole, unless it fills the page.
            let start = self.entries.partition_point(|earlier| earlier.lba < entry.lba);
            let moved = if start > 0 { self.entries.split_off(start) } else { Vec::new() };
            self.end_page().await?;
            self.entries = moved;
        }
        self.run.root.entries += 1;
        self.entries.push(entry);
        if self.range_start != entry.lba {
            self.end_range();
            self.range_start = entry.lba;
        }
        self.range.push((entry.birth, entry.block().is_some()));
        Ok(())
    }

    /// Counts the blocks of a range that no head sees.
    fn end_range(&mut self) {
        let range = std::mem::take(&mut self.range);
        let Some(heads) = &self.heads else { return };
        let births: SmallVec<[Birth; 4]> = range.iter().map(|(birth, _)| *birth).collect();
        let seen = heads.live(&births);
        let is_kept = |((_, is_block), is_seen): &(&(Birth, bool), bool)| *is_block && !is_seen;
        self.run.root.kept += range.iter().zip(seen).filter(is_kept).count() as u64;
    }

    async fn end_page(&mut self) -> Result<(), LogError> {
        let entries = std::mem::take(&mut self.entries);
        let Some(first) = entries.first() else { return Ok(()) };
        let crc = self.put(|to| encode_page(&entries, to)).await?;
        self.run.fences.push(Fence { first: first.lba, crc });
        self.run.root.pages += 1;
        Ok(())
    }

    /// Appends a block, and returns its checksum.
    async fn put(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<u32, LogError> {
        let segment = self.segment.get_or_insert_with(|| {
            self.core.drives.buffers.allocate_zeroed(self.core.segments.segment_bytes())
        });
        let start = self.slots.len() * BLOCK_BYTES as usize;
        let to = segment.slice(start..start + BLOCK_BYTES as usize);
        let crc = to.with_mut(|bytes| {
            fill(bytes);
            crc32c(bytes)
        });
        let crc = crc.unwrap_or_default();
        self.slots.push(Slot { lba: self.slots.len() as u64, crc, birth: 0, is_late: false });
        if self.slots.len() as u64 == self.core.segments.payload {
            self.end_segment().await?;
        }
        Ok(crc)
    }

    async fn end_segment(&mut self) -> Result<(), LogError> {
        let Some(data) = self.segment.take() else { return Ok(()) };
        let (sequence, segment) = next_place(self.core).await?;
        let summary = Summary {
            kind: Kind::Map,
            volume: self.core.identity.volume,
            sequence,
            staged_through: 0,
            slots: std::mem::take(&mut self.slots),
            holes: Vec::new(),
        };
        let payload = self.core.segments.payload as usize * BLOCK_BYTES as usize;
        data.slice(payload..data.len()).with_mut(|to| summary.encode(to));
        self.run.root.segments.push((sequence, segment));
        let state = &mut *self.core.state.borrow_mut();
        state.usage.sealed(segment, Content::Map, sequence);
        state.figures.map_blocks += summary.slots.len() as u64;
        start(self.core, state, sequence, segment, data);
        Ok(())
    }

    /// Completes the run and waits until it is written.
    async fn finish(mut self) -> Result<Run, LogError> {
        self.end_range();
        self.end_page().await?;
        let fences = std::mem::take(&mut self.run.fences);
        for page in fences.chunks(FENCES) {
            let crc = self.put(|to| encode_fences(page, to)).await?;
            self.run.root.fence_crcs.push(crc);
        }
        self.end_segment().await?;
        let last = self.core.state.borrow().plan.next_sequence();
        self.core.when(|state| (state.written_before() >= last).then_some(())).await?;
        Ok(Run { fences, ..self.run })
    }
}
