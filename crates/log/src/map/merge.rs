//! Merging of sorted entries: the newest content of each logical block wins, and blocks that lose
//! are dead.
//!
//! Sources are fed in pieces, so that a merge of any size needs the memory of a few pages of each.

use std::collections::VecDeque;

use crate::map::entry::{Block, Entry, Value};

/// Entries of one source that were read and not yet merged.
#[derive(Default)]
pub(crate) struct Source {
    pub(crate) entries: VecDeque<Entry>,
    /// True if no more entries follow.
    pub(crate) is_at_end: bool,
}

/// A merge of sources, the newest first.
pub(crate) struct Merge {
    pub(crate) sources: Vec<Source>,
    /// Logical blocks before this one are merged.
    position: u64,
    /// True if nothing older is left: holes need not be kept.
    drops_holes: bool,
}

/// Outcome of a step.
pub(crate) enum Step {
    /// The next entry of the result.
    Entry(Entry),
    /// A block that a newer entry replaces.
    Dead(Block),
    /// This source must be fed, or be at its end.
    Feed(usize),
    /// All sources are at their end.
    End,
}

impl Merge {
    pub(crate) fn new(sources: usize, drops_holes: bool) -> Self {
        let sources = (0..sources).map(|_| Source::default()).collect();
        Self { sources, position: 0, drops_holes }
    }

    /// Takes the next step.
    pub(crate) fn step(&mut self) -> Step {
        loop {
            for index in 0..self.sources.len() {
                let source = &mut self.sources[index];
                while let Some(first) = source.entries.front().copied() {
                    if first.end() > self.position {
                        break;
                    }
                    source.entries.pop_front();
                    if first.lba < self.position
                        && let Value::Block(block) = first.value
                    {
                        return Step::Dead(block);
                    }
                }
                if source.entries.is_empty() && !source.is_at_end {
                    return Step::Feed(index);
                }
            }
            let firsts = || self.sources.iter().filter_map(|source| source.entries.front());
            let Some(start) = firsts().map(|entry| entry.lba.max(self.position)).min() else {
                return Step::End;
            };
            let winner = firsts().position(|entry| entry.lba <= start).expect("one begins there or before");
            let winning = *firsts().nth(winner).expect("just found");
            let newer = firsts().take(winner).map(|entry| entry.lba);
            let end = newer.fold(winning.end(), u64::min);
            if let Value::Block(_) = winning.value {
                // Taken here, so that passing over it does not count it as dead.
                let source = self.sources.iter_mut().filter(|source| !source.entries.is_empty()).nth(winner);
                source.expect("just found").entries.pop_front();
            }
            self.position = end;
            match winning.value {
                Value::Hole(_) if self.drops_holes => {}
                _ => return Step::Entry(winning.clipped(start, end)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::table::Table;
    use stripewise_drive::SplitMix64;

    #[test]
    fn merge_keeps_the_newest_and_reports_the_rest() {
        for seed in 0..200 {
            let mut random = SplitMix64::new(seed);
            let mut truth = Table::default();
            let mut place = 0;
            let mut dead_in_truth = Vec::new();
            let mut tables = Vec::new();
            for _ in 0..3 {
                let mut table = Table::default();
                for _ in 0..random.below(30) {
                    let lba = random.below(50);
                    place += 1;
                    let block = Block { place, crc: 1, use_number: 2, birth: 3 };
                    if random.chance(0.7) {
                        let old_here = table.put_block(lba, block);
                        let old = truth.put_block(lba, block);
                        dead_in_truth.extend(old.filter(|_| old_here.is_none()));
                    } else {
                        let count = 1 + random.below(20);
                        let mut here = Vec::new();
                        table.put_hole(lba, count, &mut |block| here.push(block));
                        truth.put_hole(lba, count, &mut |block| {
                            dead_in_truth.extend((!here.contains(&block)).then_some(block));
                        });
                    }
                }
                tables.insert(0, table);
            }
            let drops_holes = random.chance(0.5);
            let mut merge = Merge::new(3, drops_holes);
            let mut left: Vec<_> = tables.iter().map(|table| table.iter().collect::<VecDeque<_>>()).collect();
            let (mut result, mut dead) = (Vec::new(), Vec::new());
            loop {
                match merge.step() {
                    Step::Entry(entry) => result.push(entry),
                    Step::Dead(block) => dead.push(block),
                    Step::Feed(source) => {
                        let next = left[source].pop_front();
                        merge.sources[source].is_at_end = next.is_none();
                        merge.sources[source].entries.extend(next);
                    }
                    Step::End => break,
                }
            }
            assert!(result.windows(2).all(|pair| pair[0].end() <= pair[1].lba), "seed {seed}");
            for lba in 0..80 {
                let found = result.iter().find(|entry| (entry.lba..entry.end()).contains(&lba));
                let block = |value: Option<Value>| match value {
                    Some(Value::Block(block)) => Some(block),
                    _ => None,
                };
                assert_eq!(block(found.map(|entry| entry.value)), block(truth.get(lba)), "seed {seed}");
                assert!(drops_holes || found.is_some() == truth.get(lba).is_some(), "seed {seed}: holes");
            }
            dead.sort_by_key(|block| block.place);
            dead_in_truth.sort_by_key(|block| block.place);
            assert_eq!(dead, dead_in_truth, "seed {seed}");
        }
    }
}
