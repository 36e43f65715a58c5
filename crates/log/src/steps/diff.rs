//! Differences between two views of a volume, in the order of logical blocks.
//!
//! A version is the same for both exactly if its birth is: what a snapshot keeps is never written
//! again. Each call looks at a bounded number of entries, at one instant; snapshots do not change,
//! so a walk in many calls is as good as one.

use std::ops::Range;
use std::rc::Rc;

use stripewise_array::Class;

use crate::core::Core;
use crate::error::LogError;
use crate::map::entry::Entry;
use crate::map::lineage::{Kept, View};
use crate::map::merge::{Merge, Step};
use crate::map::run::Run;
use crate::shape::BLOCK_BYTES;
use crate::steps::look_up::read_pages;
use crate::steps::spill::{TABLE_ENTRIES, some_of};

/// Pages of a run that a call reads.
const RUN_PAGES: u64 = 32;

/// A range whose contents differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogChange {
    /// Start, bytes.
    pub offset_bytes: u64,
    /// Length, bytes.
    pub length_bytes: u64,
    /// True if the newer view has data there; false if it reads as zeros.
    pub has_data: bool,
}

/// Differences from a place on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogChanges {
    /// Ranges in order, adjacent ones of a kind joined.
    pub ranges: Vec<LogChange>,
    /// Place to go on from; `None` at the end.
    pub next_bytes: Option<u64>,
}

/// Compares two views from a logical block on; without an older one all data is new.
pub(crate) async fn diff(
    core: &Rc<Core>,
    older: Option<&View>,
    newer: &View,
    from: u64,
) -> Result<LogChanges, LogError> {
    let _ticket = core.readers.begin();
    let (mut sources, runs, mut end) = {
        let state = core.state.borrow();
        let (mut sources, mut end) = (Vec::new(), u64::MAX);
        for table in std::iter::once(state.open.index()).chain(state.map.tables()) {
            let mut next = table.versions(from).next().map_or(from, |entry| entry.lba);
            let entries = some_of(table, &mut next);
            // Fewer than asked for: there are no more.
            if let Some(last) = entries.back().filter(|_| entries.len() >= TABLE_ENTRIES) {
                end = end.min(last.end());
            }
            sources.push(entries);
        }
        (sources, state.map.runs.clone(), end)
    };
    for run in &runs {
        let (entries, until) = entries_from(core, run, from).await?;
        end = end.min(until);
        sources.push(entries.into());
    }
    let mut merge = Merge::new(sources.len(), Kept::of(older.into_iter().chain([newer])), false, false);
    for (source, entries) in merge.sources.iter_mut().zip(sources) {
        source.entries = entries;
        source.is_at_end = true;
    }
    let mut changes = LogChanges::default();
    let mut range: Vec<Entry> = Vec::new();
    loop {
        let step = merge.step();
        let next = match step {
            Step::Entry(entry) => Some(entry),
            Step::Dead(_) => continue,
            Step::Feed(_) => unreachable!("all are there"),
            Step::End => None,
        };
        if range.first().is_some_and(|first| next.is_none_or(|next| next.lba != first.lba)) {
            compare(&range, older, newer, from..end, &mut changes.ranges);
            range.clear();
        }
        let Some(next) = next else { break };
        range.push(next);
    }
    changes.next_bytes = (end < u64::MAX).then(|| end * BLOCK_BYTES);
    Ok(changes)
}

/// Entries of a run from a logical block on, and the block before which they are all there are.
async fn entries_from(core: &Core, run: &Run, from: u64) -> Result<(Vec<Entry>, u64), LogError> {
    let first = run.page_of(from).unwrap_or(0);
    let mut entries = Vec::new();
    for page in first..run.root.pages {
        let start = run.fences[page as usize].first;
        let begins_range = entries.last().is_some_and(|last: &Entry| last.lba < start);
        if page >= first + RUN_PAGES && begins_range {
            return Ok((entries, start));
        }
        entries.extend(read_pages(core, run, page, 1, Class::Foreground).await?);
    }
    Ok((entries, u64::MAX))
}

/// Adds a range to the changes if the views differ there.
fn compare(
    versions: &[Entry],
    older: Option<&View>,
    newer: &View,
    within: Range<u64>,
    changes: &mut Vec<LogChange>,
) {
    let data = |view: &View| {
        let seen = versions.iter().find(|version| view.sees(version.birth))?;
        seen.block().map(|_| seen.birth)
    };
    let (before, after) = (older.and_then(data), data(newer));
    let (start, end) = (versions[0].lba.max(within.start), versions[0].end().min(within.end));
    if before == after || start >= end {
        return;
    }
    let has_data = after.is_some();
    let (offset_bytes, length_bytes) = (start * BLOCK_BYTES, (end - start) * BLOCK_BYTES);
    match changes.last_mut() {
        Some(last) if last.has_data == has_data && last.offset_bytes + last.length_bytes == offset_bytes => {
            last.length_bytes += length_bytes;
        }
        _ => changes.push(LogChange { offset_bytes, length_bytes, has_data }),
    }
}
