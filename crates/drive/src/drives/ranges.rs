//! A set of byte ranges that are merged when they touch: where a drive's medium is bad.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint ranges that do not touch, by start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    ends: BTreeMap<u64, u64>,
}

impl RangeSet {
    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&other_start, &other_end)) = self.ends.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            self.ends.remove(&other_start);
            start = start.min(other_start);
            end = end.max(other_end);
        }
        self.ends.insert(start, end);
    }

    /// Takes `range` out; gives how many bytes of it were in the set.
    pub(crate) fn remove(&mut self, range: Range<u64>) -> u64 {
        let mut removed = 0;
        while let Some((&start, &end)) = self.ends.range(..range.end).next_back() {
            if end <= range.start || range.is_empty() {
                break;
            }
            self.ends.remove(&start);
            removed += end.min(range.end) - start.max(range.start);
            if end > range.end {
                self.ends.insert(range.end, end);
            }
            if start < range.start {
                self.ends.insert(start, range.start);
            }
        }
        removed
    }

    /// The first byte of `range` that is in the set.
    pub(crate) fn first_within(&self, range: Range<u64>) -> Option<u64> {
        if range.is_empty() {
            return None;
        }
        let covering = self.ends.range(..=range.start).next_back().filter(|&(_, &end)| end > range.start);
        match covering {
            Some(_) => Some(range.start),
            None => self.ends.range(range).next().map(|(&start, _)| start),
        }
    }

    pub(crate) fn total_bytes(&self) -> u64 {
        self.ends.iter().map(|(start, end)| end - start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    #[test]
    fn behaves_as_a_set_of_bytes() {
        let mut random = SplitMix64::new(11);
        let (mut set, mut bytes) = (RangeSet::default(), [false; 64]);
        for _ in 0..20_000 {
            let start = random.below(64);
            let range = start..start + random.below(65 - start);
            let within = || range.start as usize..range.end as usize;
            match random.below(3) {
                0 => {
                    set.insert(range.clone());
                    bytes[within()].fill(true);
                }
                1 => {
                    let removed = bytes[within()].iter().filter(|&&bad| bad).count() as u64;
                    assert_eq!(set.remove(range.clone()), removed);
                    bytes[within()].fill(false);
                }
                _ => {
                    let first = within().find(|&at| bytes[at]).map(|at| at as u64);
                    assert_eq!(set.first_within(range.clone()), first, "{set:?} {range:?}");
                }
            }
            assert_eq!(set.total_bytes(), bytes.iter().filter(|&&bad| bad).count() as u64);
            let neighbours = set.ends.iter().zip(set.ends.keys().skip(1));
            assert!(neighbours.into_iter().all(|((_, end), next)| end < next), "merged: {set:?}");
        }
    }
}
