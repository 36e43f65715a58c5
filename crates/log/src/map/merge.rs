//! Merging of sorted entries: of each logical block the versions that some viewer sees remain, and
//! blocks that are replaced or seen by none are dead.
//!
//! Sources are fed in pieces, so that a merge of any size needs the memory of a few pages of each.

use std::cmp::Reverse;
use std::collections::VecDeque;

use smallvec::SmallVec;

use crate::map::entry::{Block, Entry, Value};
use crate::map::lineage::{Birth, Kept};
use crate::mutation::{Mutation, is_chosen};

/// Entries of one source that were read and not yet merged.
#[derive(Default)]
pub(crate) struct Source {
    pub(crate) entries: VecDeque<Entry>,
    /// True if no more entries follow.
    pub(crate) is_at_end: bool,
}

impl Source {
    /// True if all versions of the first range are there.
    fn has_range(&self) -> bool {
        let ends = (self.entries.front(), self.entries.back());
        self.is_at_end || matches!(ends, (Some(first), Some(last)) if first.lba != last.lba)
    }
}

/// A merge of sources, the newest first.
pub(crate) struct Merge {
    pub(crate) sources: Vec<Source>,
    kept: Kept,
    /// Logical blocks before this one are merged.
    position: u64,
    /// True if nothing older is left, and nothing newer relies on holes here: the last version of a
    /// block need not be a hole.
    drops_holes: bool,
    /// True if all parts of the map that are older are merged.
    is_complete: bool,
    steps: VecDeque<Step>,
}

/// Outcome of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// The next entry of the result.
    Entry(Entry),
    /// A block that no entry of the result has.
    Dead(Block),
    /// This source must be fed, or be at its end.
    Feed(usize),
    /// All sources are at their end.
    End,
}

impl Merge {
    pub(crate) fn new(sources: usize, kept: Kept, is_complete: bool, drops_holes: bool) -> Self {
        let sources = (0..sources).map(|_| Source::default()).collect();
        Self { sources, kept, position: 0, drops_holes, is_complete, steps: VecDeque::new() }
    }

    /// Takes the next step.
    pub(crate) fn step(&mut self) -> Step {
        loop {
            if let Some(step) = self.steps.pop_front() {
                return step;
            }
            for (index, source) in self.sources.iter_mut().enumerate() {
                while source.entries.front().is_some_and(|first| first.end() <= self.position) {
                    source.entries.pop_front();
                }
                if !source.has_range() {
                    return Step::Feed(index);
                }
            }
            let firsts = || self.sources.iter().filter_map(|source| source.entries.front());
            let Some(start) = firsts().map(|first| first.lba.max(self.position)).min() else {
                return Step::End;
            };
            let end_at = |first: &Entry| if first.lba > start { first.lba } else { first.end() };
            let end = firsts().map(end_at).min().expect("a range begins there or before");
            self.merge(start, end);
            self.position = end;
        }
    }

    /// Merges the versions of a range.
    fn merge(&mut self, start: u64, end: u64) {
        let mut versions: SmallVec<[Entry; 4]> = SmallVec::new();
        for source in &self.sources {
            let Some(first) = source.entries.front().filter(|first| first.lba <= start) else { continue };
            let of_range = source.entries.iter().take_while(|entry| entry.lba == first.lba);
            versions.extend(of_range.map(|entry| entry.clipped(start, end)));
        }
        // Stable: of one birth the newest source comes first.
        versions.sort_by_key(|version| Reverse(version.birth));
        let steps = &mut self.steps;
        let mut bury = |version: &Entry| steps.extend(version.block().map(Step::Dead));
        let mut newest: SmallVec<[Entry; 4]> = SmallVec::new();
        for version in &versions {
            match newest.last() {
                Some(last) if last.birth == version.birth => bury(version),
                _ => newest.push(*version),
            }
        }
        let births: SmallVec<[Birth; 4]> = newest.iter().map(|version| version.birth).collect();
        let mut live = self.kept.live(&births);
        if is_chosen(Mutation::KeptVersionDropped) {
            live.iter_mut().skip(1).for_each(|is_live| *is_live = false);
        }
        newest.iter().zip(&live).filter(|(_, is_live)| !**is_live).for_each(|(version, _)| bury(version));
        let mut is_live = live.into_iter();
        newest.retain(|_| is_live.next().expect("one each"));
        while self.drops_holes && newest.last().is_some_and(|version| version.value == Value::Hole) {
            newest.pop();
        }
        let is_complete = self.is_complete;
        self.steps.extend(
            newest
                .into_iter()
                .map(|version| Step::Entry(Entry { is_late: version.is_late && !is_complete, ..version })),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::table::Table;
    use crate::map::table::tests::{Plain, some_entry, some_history};
    use stripewise_drive::SplitMix64;

    #[test]
    fn merges_keep_what_viewers_see_and_report_the_rest() {
        for seed in 0..200 {
            let mut random = SplitMix64::new(seed);
            let (branches, births) = some_history(&mut random);
            let everything = Kept::new(&branches, births.iter().copied());
            let tips: Vec<Birth> = births.iter().copied().filter(|_| random.chance(0.5)).collect();
            let kept = Kept::new(&branches, tips.iter().copied());
            let (mut truth, mut place, mut dead_before) = (Plain::default(), 0, 0);
            let mut tables = Vec::new();
            for _ in 0..3 {
                let mut table = Table::default();
                for _ in 0..random.below(30) {
                    place += 1;
                    let entry = some_entry(&mut random, &births, place);
                    truth.put(&entry);
                    table.put(entry, &everything, &mut |_| dead_before += 1);
                }
                tables.insert(0, table);
            }
            let drops_holes = random.chance(0.5);
            let mut merge = Merge::new(3, kept, drops_holes, drops_holes);
            let mut left: Vec<_> = tables.iter().map(|table| table.iter().collect::<VecDeque<_>>()).collect();
            let blocks = left.iter().flatten().filter(|entry| entry.block().is_some()).count();
            let (mut result, mut dead) = (Vec::new(), Vec::new());
            loop {
                match merge.step() {
                    Step::Entry(entry) => result.push(entry),
                    Step::Dead(block) => dead.push(block.place),
                    Step::Feed(source) => {
                        let next = left[source].pop_front();
                        merge.sources[source].is_at_end = next.is_none();
                        merge.sources[source].entries.extend(next);
                    }
                    Step::End => break,
                }
            }
            assert!(
                result.windows(2).all(|pair| match pair[0].lba == pair[1].lba {
                    true => pair[0].count == pair[1].count && pair[0].birth > pair[1].birth,
                    false => pair[0].end() <= pair[1].lba,
                }),
                "seed {seed}: {result:?}"
            );
            for lba in 0..80 {
                for &tip in &tips {
                    let view = branches.view(tip);
                    let found = result
                        .iter()
                        .find(|entry| (entry.lba..entry.end()).contains(&lba) && view.sees(entry.birth));
                    let found = found.map(|entry| (entry.birth, entry.block().map(|block| block.place)));
                    let expected = truth.newest(lba, &view);
                    let is_dropped_hole = drops_holes && matches!(expected, Some((_, None)));
                    let is_right = found == expected || found.is_none() && is_dropped_hole;
                    assert!(is_right, "seed {seed}: block {lba} at {tip}: {found:?}, not {expected:?}");
                }
            }
            let remaining = result.iter().filter_map(Entry::block).count();
            assert_eq!(remaining + dead.len(), blocks, "seed {seed}: each block remains or is dead");
        }
    }
}
