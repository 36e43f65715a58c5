//! Free slabs of one drive, as stretches. Memory is proportional to the number of stretches, not of
//! slabs.

use std::collections::BTreeMap;

/// Free slabs: first slab and end of each stretch; stretches do not touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stretches {
    by_start: BTreeMap<u32, u32>,
    count: u64,
}

impl Stretches {
    /// Creates the free stretches of a drive with `slabs` slabs. `used` has the stretches in use,
    /// in order and without overlap.
    pub(crate) fn without(slabs: u32, used: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let mut free = Self::default();
        let mut next = 0;
        for (start, end) in used {
            free.push(next, start.min(slabs));
            next = next.max(end);
        }
        free.push(next, slabs);
        free
    }

    fn push(&mut self, start: u32, end: u32) {
        if start < end {
            self.by_start.insert(start, end);
            self.count += u64::from(end - start);
        }
    }

    /// Number of free slabs.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The stretch that contains `slab`, or the first one after it.
    pub(crate) fn at_or_after(&self, slab: u32) -> Option<(u32, u32)> {
        self.at(slab).or_else(|| self.by_start.range(slab..).next().map(|(start, end)| (*start, *end)))
    }

    /// The stretch that contains `slab`, if that is free.
    fn at(&self, slab: u32) -> Option<(u32, u32)> {
        let (start, end) = self.by_start.range(..=slab).next_back()?;
        (*end > slab).then_some((*start, *end))
    }

    /// The first stretch with room for `count`, or else the longest.
    pub(crate) fn fit(&self, count: u64) -> Option<(u32, u32)> {
        let mut longest: Option<(u32, u32)> = None;
        for (&start, &end) in &self.by_start {
            if u64::from(end - start) >= count {
                return Some((start, end));
            }
            if longest.is_none_or(|(from, to)| end - start > to - from) {
                longest = Some((start, end));
            }
        }
        longest
    }

    /// True if all of these slabs are free.
    pub(crate) fn contains(&self, first: u32, count: u32) -> bool {
        let Some(end) = first.checked_add(count) else { return false };
        count == 0 || self.at(first).is_some_and(|(_, free_end)| free_end >= end)
    }

    /// Takes free slabs.
    pub(crate) fn take(&mut self, first: u32, count: u32) {
        assert!(self.contains(first, count), "slabs {first} and {count} on are free");
        if count == 0 {
            return;
        }
        let (start, end) = self.at(first).expect("just seen");
        self.by_start.remove(&start);
        self.count -= u64::from(end - start);
        self.push(start, first);
        self.push(first + count, end);
    }

    /// Gives back slabs that are in use.
    pub(crate) fn give(&mut self, first: u32, count: u32) {
        if count == 0 {
            return;
        }
        let (mut start, mut end) = (first, first.checked_add(count).expect("slabs of the drive"));
        let next = self.by_start.range(first..).next().map(|(start, end)| (*start, *end));
        assert!(self.at(first).is_none() && next.is_none_or(|(next, _)| next >= end), "slab {first} is free");
        if let Some((next_start, next_end)) = next.filter(|(next, _)| *next == end) {
            self.by_start.remove(&next_start);
            self.count -= u64::from(next_end - next_start);
            end = next_end;
        }
        let before = self.by_start.range(..first).next_back().map(|(start, end)| (*start, *end));
        if let Some((before_start, before_end)) = before.filter(|(_, end)| *end == first) {
            self.by_start.remove(&before_start);
            self.count -= u64::from(before_end - before_start);
            start = before_start;
        }
        self.push(start, end);
    }
}

#[cfg(test)]
mod tests {
    use stripewise_drive::SplitMix64;

    use super::*;

    #[test]
    fn agrees_with_a_list_of_slabs() {
        let mut random = SplitMix64::new(5);
        let mut free = Stretches::without(100, [(3, 10), (40, 90)]);
        let mut model: Vec<bool> =
            (0..100).map(|slab| !(3..10).contains(&slab) && !(40..90).contains(&slab)).collect();
        for _ in 0..20_000 {
            let first = random.below(100) as u32;
            let count = random.below(u64::from(101 - first).min(12)) as u32;
            let range = first as usize..(first + count) as usize;
            let all_free = model[range.clone()].iter().all(|free| *free);
            assert_eq!(free.contains(first, count), all_free);
            if all_free {
                free.take(first, count);
                model[range].fill(false);
            } else if model[range.clone()].iter().all(|free| !*free) {
                free.give(first, count);
                model[range].fill(true);
            }
            assert_eq!(free.count(), model.iter().filter(|free| **free).count() as u64);
            let next = (first as usize..100).find(|slab| model[*slab]);
            let found = free.at_or_after(first).map(|(start, _)| start.max(first) as usize);
            assert_eq!(found, next);
        }
        let touching = free.by_start.iter().zip(free.by_start.iter().skip(1)).any(|(a, b)| a.1 >= b.0);
        assert!(!touching);
    }

    #[test]
    #[should_panic(expected = "is free")]
    fn giving_twice_is_a_bug() {
        let mut free = Stretches::without(10, []);
        free.take(2, 3);
        free.give(2, 3);
        free.give(4, 1);
    }
}
