//! Sets of blocks as bytes: which blocks hold nothing valid, in the sections of a commit.
//!
//! Span by span (1 MiB), a few bytes and one for each block, at most 32 for all of its blocks. A
//! change has only spans that are different. Removing blocks never makes a set larger than
//! [`record_bytes`] said before, so a block that was written can always be taken out of the record.
//! Faults expected: bytes of any kind.

use crate::superblock::row_runs::{Reader, put_number};
use stripewise_array::{Bits, BlockSet, SPAN_BLOCKS, Span};

/// Bytes of a span's bitmap; a span with at least this many blocks in the set is stored as one.
pub(crate) const BITMAP_BYTES: usize = SPAN_BLOCKS as usize / 8;
/// Spans are numbered below this: their blocks' first bytes are numbers too.
const MAX_SPANS: u64 = 1 << 42;
/// Most bytes that the lost blocks of a pool take in its record; bounds their memory.
pub(crate) const MAX_LOST_BYTES: u64 = 4 << 20;

/// Bytes that a set takes at most, also when any of its blocks were removed.
pub(crate) fn record_bytes(set: &BlockSet) -> u64 {
    set.spans().map(|(key, bits)| span_bytes(key, bits)).sum()
}

/// The part of [`record_bytes`] that one span has.
pub(crate) fn span_bytes((space, span): Span, bits: Bits) -> u64 {
    if bits.is_empty() {
        return 0;
    }
    number_bytes(space as u64) + number_bytes(span) + 2 + bits.count().min(BITMAP_BYTES as u64)
}

fn number_bytes(number: u64) -> u64 {
    u64::from((64 - number.leading_zeros()).div_ceil(7).max(1))
}

/// A span's number, from that of the span before it in the same space.
fn span_delta(before: Option<Span>, (space, span): Span) -> u64 {
    match before {
        Some((last, before)) if last == space => span - before,
        _ => span,
    }
}

/// Adds what makes `before` the set `next`, or all of `next` where there is no before: span by
/// span what it holds then. Nothing where they are equal.
pub(crate) fn put_blocks(bytes: &mut Vec<u8>, before: &BlockSet, next: &BlockSet) {
    let gone = before.spans().map(|(key, _)| (key, next.span(key))).filter(|(_, bits)| bits.is_empty());
    let changed = next.spans().filter(|(key, bits)| before.span(*key) != *bits);
    let mut all: Vec<(Span, Bits)> = changed.chain(gone).collect();
    all.sort_unstable_by_key(|(key, _)| *key);
    let mut last: Option<Span> = None;
    for (key, bits) in all {
        put_number(bytes, key.0 as u64);
        put_number(bytes, span_delta(last, key));
        last = Some(key);
        let count = bits.count();
        put_number(bytes, count);
        match count as usize {
            0 | 256 => {}
            few if few < BITMAP_BYTES => bytes.extend(bits.iter().map(|block| block as u8)),
            _ => bits.0.iter().for_each(|word| bytes.extend(word.to_le_bytes())),
        }
    }
}

/// Applies what [`put_blocks`] wrote, up to the end of the bytes; `None` for what cannot be that.
pub(crate) fn take_blocks(reader: &mut Reader<'_>, set: &mut BlockSet) -> Option<()> {
    let mut last: Option<Span> = None;
    while !reader.0.is_empty() {
        let space = usize::from(u16::try_from(reader.number()?).ok()?);
        let delta = reader.number()?;
        let span = match last {
            Some((before, span)) if before == space && delta > 0 => span.checked_add(delta)?,
            Some((before, _)) if before >= space => return None,
            _ => delta,
        };
        if span >= MAX_SPANS || set.span_count() as u64 >= MAX_LOST_BYTES / 4 {
            return None;
        }
        let count = reader.number()?;
        let mut bits = Bits::default();
        match usize::try_from(count).ok()? {
            few if few < BITMAP_BYTES => {
                for &block in reader.take(few)? {
                    bits.0[usize::from(block) / 64] |= 1 << (block % 64);
                }
            }
            256 => bits = Bits([u64::MAX; 4]),
            _ => {
                for word in &mut bits.0 {
                    *word = u64::from_le_bytes(reader.array()?);
                }
            }
        }
        if bits.count() != count {
            return None;
        }
        set.set_span((space, span), bits);
        last = Some((space, span));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use stripewise_drive::SplitMix64;

    use super::*;

    fn written(before: &BlockSet, next: &BlockSet) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_blocks(&mut bytes, before, next);
        bytes
    }

    /// A random range of blocks: near each other, so that they meet.
    fn any_range(random: &mut SplitMix64) -> (usize, std::ops::RangeInclusive<u64>) {
        let first = random.below(1500);
        let length = [1, 1, 1, 7, 300, 700][random.below(6) as usize];
        (random.below(3) as usize, first..=first + random.below(length))
    }

    #[test]
    fn changes_make_of_one_set_the_other() {
        let mut random = SplitMix64::new(6);
        let mut before = BlockSet::default();
        for _ in 0..200 {
            let mut next = before.clone();
            for _ in 0..random.below(5) {
                let (space, range) = any_range(&mut random);
                match random.below(2) {
                    0 => next.remove(space, range).len() as u64,
                    _ => next.insert(space, range),
                };
            }
            let mut read = before.clone();
            assert_eq!(take_blocks(&mut Reader(&written(&before, &next)), &mut read), Some(()));
            assert_eq!(read, next);
            let all = written(&BlockSet::default(), &next);
            assert!(all.len() as u64 <= record_bytes(&next));
            before = next;
        }
    }

    #[test]
    fn a_set_takes_no_more_room_without_a_block() {
        let mut random = SplitMix64::new(7);
        let mut set = BlockSet::default();
        for _ in 0..60 {
            let (space, range) = any_range(&mut random);
            set.insert(space, range);
            set.insert(space, 1 << 30..=(1 << 30) + 9);
        }
        let most = record_bytes(&set);
        for (space, block) in set.clone().iter() {
            let before = record_bytes(&set);
            if random.below(4) > 0 {
                set.remove(space, block..=block);
            }
            assert!(record_bytes(&set) <= before);
            assert!(written(&BlockSet::default(), &set).len() as u64 <= most);
        }
    }

    #[test]
    fn the_bytes_are_as_described() {
        // docs/internals/format.md: a change of them changes the version.
        let mut set: BlockSet = [(0, 5), (0, 9), (0, 300 * 256 + 255), (2, 1)].into_iter().collect();
        assert_eq!(written(&BlockSet::default(), &set), [0, 0, 2, 5, 9, 0, 172, 2, 1, 255, 2, 0, 1, 1]);
        let before = set.clone();
        set.remove(0, 0..=9);
        set.insert(2, 256..=511);
        assert_eq!(written(&before, &set), [0, 0, 0, 2, 1, 128, 2]);
    }

    #[test]
    fn rubbish_does_no_harm() {
        let mut random = SplitMix64::new(8);
        for _ in 0..2000 {
            let bytes: Vec<u8> = (0..random.below(40)).map(|_| random.below(256) as u8).collect();
            let mut set = BlockSet::default();
            if take_blocks(&mut Reader(&bytes), &mut set).is_some() {
                assert_eq!(set.count(), set.iter().count() as u64);
            }
        }
    }
}
