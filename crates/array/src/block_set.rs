//! Sets of 4 KiB blocks, by spans of 1 MiB: which blocks of a volume hold nothing valid.
//!
//! A block has a *space* (a column of an array; or 0 where there is only one) and a number in it. A
//! span with any block of the set takes about 64 bytes of memory, so a set takes no more than
//! 1/16384 of the space that it speaks of, however its blocks are scattered. Pure data; faults
//! expected: none.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Blocks of one span.
pub const SPAN_BLOCKS: u64 = 256;

/// Space and number of a block.
pub type Block = (usize, u64);
/// Space and number of a span.
pub type Span = (usize, u64);

/// A bit for each block of a span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bits(pub [u64; 4]);

impl Bits {
    fn of(from: u64, to: u64) -> Self {
        let mut bits = Self::default();
        for (index, word) in bits.0.iter_mut().enumerate() {
            let first = index as u64 * 64;
            let (from, to) = (from.max(first), (to + 1).min(first + 64));
            if from < to {
                *word = u64::MAX >> (64 - (to - from)) << (from - first);
            }
        }
        bits
    }

    fn join(self, other: Self, op: impl Fn(u64, u64) -> u64) -> Self {
        Self(std::array::from_fn(|index| op(self.0[index], other.0[index])))
    }

    /// Number of blocks.
    pub fn count(self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// True if it has no block.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// True if all blocks of the other span are in this one.
    pub fn has_all(self, other: Self) -> bool {
        other.join(self, |other, mine| other & !mine).is_empty()
    }

    /// The blocks of both.
    pub fn with(self, other: Self) -> Self {
        self.join(other, |mine, other| mine | other)
    }

    /// Numbers of its blocks in the span.
    pub fn iter(self) -> impl Iterator<Item = u64> {
        (0..SPAN_BLOCKS).filter(move |block| self.0[(block / 64) as usize] >> (block % 64) & 1 == 1)
    }

    /// The number of its last block.
    pub fn last(self) -> Option<u64> {
        let word = self.0.iter().rposition(|word| *word != 0)?;
        Some(word as u64 * 64 + 63 - u64::from(self.0[word].leading_zeros()))
    }

    fn first(self) -> Option<u64> {
        let word = self.0.iter().position(|word| *word != 0)?;
        Some(word as u64 * 64 + u64::from(self.0[word].trailing_zeros()))
    }
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockSet {
    /// By space and number of the span; none is empty.
    spans: BTreeMap<Span, Bits>,
    count: u64,
}

impl BlockSet {
    /// Number of blocks.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// True if it has no block.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// All blocks, in order.
    pub fn iter(&self) -> impl Iterator<Item = Block> + '_ {
        self.spans.iter().flat_map(|(&(space, span), bits)| {
            bits.iter().map(move |block| (space, span * SPAN_BLOCKS + block))
        })
    }

    /// The first of a range of blocks of a space.
    pub(crate) fn first_in(&self, space: usize, blocks: RangeInclusive<u64>) -> Option<u64> {
        let (from, to) = blocks.into_inner();
        if self.spans.is_empty() || from > to {
            return None;
        }
        let spans = self.spans.range((space, from / SPAN_BLOCKS)..=(space, to / SPAN_BLOCKS));
        spans.into_iter().find_map(|(&(_, span), bits)| {
            let first = bits.join(part_of(span, from, to), |bits, part| bits & part).first()?;
            Some(span * SPAN_BLOCKS + first)
        })
    }

    /// Adds a range of blocks of a space; how many were not in the set.
    pub fn insert(&mut self, space: usize, blocks: RangeInclusive<u64>) -> u64 {
        let (from, to) = blocks.into_inner();
        let before = self.count;
        for span in from / SPAN_BLOCKS..=to / SPAN_BLOCKS {
            self.join_span((space, span), part_of(span, from, to));
        }
        self.count - before
    }

    /// Adds blocks of a span.
    pub fn join_span(&mut self, key: Span, more: Bits) {
        let bits = self.spans.entry(key).or_default();
        let joined = bits.with(more);
        self.count += joined.count() - bits.count();
        *bits = joined;
    }

    /// Removes a range of blocks of a space; those that were in the set.
    pub fn remove(&mut self, space: usize, blocks: RangeInclusive<u64>) -> Vec<u64> {
        let (from, to) = blocks.into_inner();
        let mut removed = Vec::new();
        if self.spans.is_empty() || from > to {
            return removed;
        }
        let spans = self.spans.range((space, from / SPAN_BLOCKS)..=(space, to / SPAN_BLOCKS));
        let keys: Vec<u64> = spans.map(|(&(_, span), _)| span).collect();
        for span in keys {
            let old = self.spans[&(space, span)];
            let gone = old.join(part_of(span, from, to), |bits, part| bits & part);
            removed.extend(gone.iter().map(|block| span * SPAN_BLOCKS + block));
            self.set_span((space, span), old.join(gone, |bits, gone| bits & !gone));
        }
        removed
    }

    /// Gives a span these blocks, and no others.
    pub fn set_span(&mut self, key: Span, bits: Bits) {
        let old = match bits.is_empty() {
            true => self.spans.remove(&key),
            false => self.spans.insert(key, bits),
        };
        self.count = self.count + bits.count() - old.map_or(0, Bits::count);
    }

    /// Keeps the spans for which `keep` returns true, given their space and first block.
    pub(crate) fn retain_spans(&mut self, keep: impl Fn(Block) -> bool) {
        self.spans.retain(|&(space, span), _| keep((space, span * SPAN_BLOCKS)));
        self.count = self.spans.values().map(|bits| bits.count()).sum();
    }

    /// The spans of which this is true.
    pub fn filtered(&self, keep: impl Fn(Block) -> bool) -> Self {
        let mut kept = self.clone();
        kept.retain_spans(keep);
        kept
    }

    /// Adds all blocks of another set.
    pub(crate) fn extend(&mut self, other: &Self) {
        other.spans.iter().for_each(|(key, bits)| self.join_span(*key, *bits));
    }

    /// The blocks that are in both.
    pub fn intersection(&self, other: &Self) -> Self {
        let mut both = Self::default();
        for (key, bits) in self.spans() {
            both.set_span(key, bits.join(other.span(key), |one, other| one & other));
        }
        both
    }

    /// True if all blocks of another set are in this one.
    pub fn has_all(&self, other: &Self) -> bool {
        other.spans().all(|(key, bits)| self.span(key).has_all(bits))
    }

    /// The spans in order, each by its space and number.
    pub fn spans(&self) -> impl Iterator<Item = (Span, Bits)> + '_ {
        self.spans.iter().map(|(key, bits)| (*key, *bits))
    }

    /// The spans of a space with these numbers.
    pub fn spans_in(
        &self,
        space: usize,
        numbers: std::ops::Range<u64>,
    ) -> impl Iterator<Item = (Span, Bits)> + '_ {
        self.spans.range((space, numbers.start)..(space, numbers.end)).map(|(key, bits)| (*key, *bits))
    }

    /// Number of spans with at least one block.
    pub fn span_count(&self) -> usize {
        self.spans.len()
    }

    /// The blocks of one span.
    pub fn span(&self, key: Span) -> Bits {
        self.spans.get(&key).copied().unwrap_or_default()
    }
}

impl FromIterator<Block> for BlockSet {
    fn from_iter<T: IntoIterator<Item = Block>>(blocks: T) -> Self {
        let mut set = Self::default();
        for (space, block) in blocks {
            set.insert(space, block..=block);
        }
        set
    }
}

/// The blocks of a span from `from` to `to`, both of the space.
fn part_of(span: u64, from: u64, to: u64) -> Bits {
    let first = span * SPAN_BLOCKS;
    Bits::of(from.max(first) - first, to.min(first + (SPAN_BLOCKS - 1)) - first)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use stripewise_drive::SplitMix64;

    use super::*;

    /// A random range of blocks: near each other, so that they meet.
    fn any_range(random: &mut SplitMix64) -> (usize, RangeInclusive<u64>) {
        let first = random.below(1500);
        let length = [1, 1, 1, 7, 300, 700][random.below(6) as usize];
        (random.below(3) as usize, first..=first + random.below(length))
    }

    #[test]
    fn random_changes_agree_with_a_plain_set() {
        let mut random = SplitMix64::new(5);
        for _ in 0..50 {
            let (mut set, mut model) = (BlockSet::default(), BTreeSet::new());
            for _ in 0..40 {
                let (space, range) = any_range(&mut random);
                let of_range = || range.clone().map(|block| (space, block));
                let known: Vec<u64> =
                    of_range().filter(|block| model.contains(block)).map(|(_, block)| block).collect();
                assert_eq!(set.first_in(space, range.clone()), known.first().copied());
                if random.below(3) == 0 {
                    assert_eq!(set.remove(space, range.clone()), known);
                    model.retain(|block| !of_range().any(|gone| gone == *block));
                } else {
                    let new = range.clone().count() - known.len();
                    assert_eq!(set.insert(space, range.clone()), new as u64);
                    model.extend(of_range());
                }
                assert_eq!(set.iter().collect::<BTreeSet<_>>(), model);
                assert_eq!(set.count(), model.len() as u64);
            }
            assert_eq!(set, model.iter().copied().collect());
        }
    }

    #[test]
    fn sets_are_compared_block_by_block() {
        let mut random = SplitMix64::new(6);
        let mut before = BlockSet::default();
        for _ in 0..200 {
            let mut next = before.clone();
            let (space, range) = any_range(&mut random);
            match random.below(2) {
                0 => next.remove(space, range).len() as u64,
                _ => next.insert(space, range),
            };
            assert_eq!(before.intersection(&next), next.intersection(&before));
            assert!(before.has_all(&before.intersection(&next)));
            assert_eq!(before.has_all(&next), before.intersection(&next) == next);
            let mut both = before.clone();
            both.extend(&next);
            assert!(both.has_all(&before) && both.has_all(&next));
            assert_eq!(both.count(), before.count() + next.count() - before.intersection(&next).count());
            before = next;
        }
    }
}
