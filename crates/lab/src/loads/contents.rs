//! Contents that can be checked: every 4 KiB block of a target holds bytes that belong to that
//! block, this run's seed and the *phase* in which it was written last, and to nothing else.
//!
//! A phase is one fill or one load. All writes of one phase to a block carry identical bytes, so
//! overlapping writes in flight need no order, and one byte per block is all there is to remember
//! to compare every byte in the end. Between phases nothing may be in flight (asserted). The bytes
//! are a fixed random megabyte at a block-dependent place, combined with a block-dependent key:
//! incompressible, no two blocks alike, and made about as fast as memory is copied. Faults
//! expected, and told apart in the report: lost writes (bytes of an older phase), misdirected
//! writes (bytes of another block), zeros, anything else. Writes may be multiples of 512 bytes: a
//! block of which only a part was written in its phase is not checked until it is written whole.
//! Checks go in multiples of 4 KiB.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use serde::{Deserialize, Serialize};
use stripewise_drive::Buffer;

use crate::loads::workload::{mix, random_stream};

/// The unit that is remembered and checked.
pub const BLOCK_BYTES: usize = 4096;

const WORDS_PER_BLOCK: usize = BLOCK_BYTES / 8;
const BASE_BYTES: usize = 1 << 20;
/// Places in the base begin at multiples of this many words: one line of the processor's cache.
const PLACE_WORDS: usize = 8;

/// No phase has written the block: its contents are not ours to check.
const NEVER: u8 = 0;
/// A write of the block failed: it holds old or new bytes.
const UNKNOWN: u8 = 255;
const LAST_PHASE: u8 = 254;

/// How many damaged places are described; beyond it they are only counted.
const PLACES_KEPT: usize = 8;

/// What written bytes look like to a drive, file system or controller that compresses or
/// deduplicates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Data {
    /// No two blocks alike, none of them compressible.
    #[default]
    Unique,
    /// As before, but so many percent of each 4 KiB block are zeros.
    Compressible(u32),
    /// Zeros alone. Lost and misdirected writes cannot be seen.
    Zeros,
}

impl Data {
    /// Words of a block that are not zero.
    fn random_words(self) -> usize {
        match self {
            Self::Unique => WORDS_PER_BLOCK,
            Self::Compressible(percent) => WORDS_PER_BLOCK * (100 - percent.min(100) as usize) / 100,
            Self::Zeros => 0,
        }
    }
}

/// What belongs where, for one target.
pub struct Contents {
    seed: u64,
    base: Vec<u64>,
    /// So many words at the beginning of each block are random, the others zero.
    random_words: usize,
    /// The phase that wrote each block last.
    written_in: RefCell<Vec<u8>>,
    phase: Cell<u8>,
    writes_in_flight: Cell<u64>,
}

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    /// Members missing while this was read, as labels.
    pub missing_drives: Vec<String>,
    /// Bytes read and compared.
    pub verified_bytes: u64,
    /// Of these, bytes in blocks that differ from what was written.
    pub corrupt_bytes: u64,
    /// Bytes that could not be read.
    pub unreadable_bytes: u64,
    /// Bytes in blocks never written, or whose last write failed, so that no contents can be
    /// demanded.
    pub unknown_bytes: u64,
    /// The first few damaged places.
    pub places: Vec<DamagedPlace>,
    /// How long it took.
    pub seconds: f64,
}

/// A block that is not as written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedPlace {
    /// Where, in bytes from the target's start.
    pub offset_bytes: u64,
    /// The phase that wrote it last.
    pub expected_phase: u8,
    /// What is there instead, or why it could not be read.
    pub found: String,
}

impl Verification {
    /// Whether every byte that was written was read back as it was written.
    pub fn is_clean(&self) -> bool {
        self.corrupt_bytes == 0 && self.unreadable_bytes == 0
    }

    pub(crate) fn note(&mut self, place: DamagedPlace) {
        if self.places.len() < PLACES_KEPT {
            self.places.push(place);
        }
    }
}

impl Contents {
    /// For a target of `capacity_bytes`, of which whole 4 KiB blocks are used. Takes one byte per
    /// block, and a megabyte.
    pub fn new(seed: u64, capacity_bytes: u64) -> Self {
        let mut random = random_stream(seed, 0);
        let base = (0..BASE_BYTES / 8 + WORDS_PER_BLOCK).map(|_| random.next_u64()).collect();
        let blocks = usize::try_from(capacity_bytes / BLOCK_BYTES as u64).expect("a map that fits memory");
        Self {
            seed,
            base,
            random_words: WORDS_PER_BLOCK,
            written_in: RefCell::new(vec![NEVER; blocks]),
            phase: Cell::new(NEVER),
            writes_in_flight: Cell::new(0),
        }
    }

    /// The same with other bytes.
    pub(crate) fn with_data(self, data: Data) -> Self {
        Self { random_words: data.random_words(), ..self }
    }

    /// Bytes of the target that are remembered: its capacity in whole blocks.
    pub(crate) fn covered_bytes(&self) -> u64 {
        (self.written_in.borrow().len() * BLOCK_BYTES) as u64
    }

    /// Starts the next phase: writes from now on carry new bytes. After 254 phases numbers are used
    /// again, which only blinds the check to a write lost 254 phases ago. Panics while writes are
    /// in flight.
    pub fn next_phase(&self) {
        assert_eq!(self.writes_in_flight.get(), 0, "phases change only while no write is in flight");
        let phase = self.phase.get();
        self.phase.set(if phase >= LAST_PHASE { 1 } else { phase + 1 });
    }

    fn blocks(offset_bytes: u64, length_bytes: usize) -> Range<usize> {
        assert!(
            offset_bytes.is_multiple_of(BLOCK_BYTES as u64) && length_bytes.is_multiple_of(BLOCK_BYTES),
            "checked contents come in whole blocks of 4 KiB"
        );
        let first = (offset_bytes / BLOCK_BYTES as u64) as usize;
        first..first + length_bytes / BLOCK_BYTES
    }

    /// The bytes of a block: words of `base` at a place, each combined with the key.
    fn recipe(&self, block: usize, phase: u8) -> (&[u64], u64) {
        let identity = mix(self.seed ^ mix(((block as u64) << 8) | u64::from(phase)));
        let place = (identity as usize % (BASE_BYTES / 8 / PLACE_WORDS)) * PLACE_WORDS;
        (&self.base[place..place + WORDS_PER_BLOCK], mix(identity))
    }

    /// Puts this phase's bytes for `offset_bytes` into `buffer` and remembers that they are being
    /// written. To be followed by [`Self::write_ended`].
    pub fn write_begins(&self, offset_bytes: u64, buffer: &Buffer) {
        assert!(self.phase.get() != NEVER, "a phase was started");
        self.writes_in_flight.set(self.writes_in_flight.get() + 1);
        let mut written_in = self.written_in.borrow_mut();
        buffer.with_mut(|mut bytes| {
            for (block, part) in parts(offset_bytes, bytes.len()) {
                let (to, rest) = std::mem::take(&mut bytes).split_at_mut(part.len());
                bytes = rest;
                self.make(block, &part, to);
                let is_whole = part.len() == BLOCK_BYTES;
                // A part with the phase's bytes changes nothing in a block of that phase.
                if is_whole || written_in[block] != self.phase.get() {
                    written_in[block] = if is_whole { self.phase.get() } else { UNKNOWN };
                }
            }
        });
    }

    /// This phase's bytes for a part of a block.
    fn make(&self, block: usize, part: &Range<usize>, to: &mut [u8]) {
        let (words, key) = self.recipe(block, self.phase.get());
        let (first, last) = (part.start / 8, part.end / 8);
        let random = self.random_words.clamp(first, last);
        let to = to.as_chunks_mut::<8>().0;
        for (to, word) in to.iter_mut().zip(&words[first..random]) {
            *to = (word ^ key).to_le_bytes();
        }
        to[random - first..].fill([0; 8]);
    }

    /// A write begun with [`Self::write_begins`] was answered. Blocks of a failed one hold old or
    /// new bytes and are not checked until written again.
    pub fn write_ended(&self, offset_bytes: u64, length_bytes: usize, succeeded: bool) {
        self.writes_in_flight.set(self.writes_in_flight.get() - 1);
        if !succeeded {
            let mut written_in = self.written_in.borrow_mut();
            parts(offset_bytes, length_bytes).for_each(|(block, _)| written_in[block] = UNKNOWN);
        }
    }

    /// The range was discarded: what it reads as is not known until it is written again.
    pub fn discarded(&self, offset_bytes: u64, length_bytes: usize) {
        let mut written_in = self.written_in.borrow_mut();
        parts(offset_bytes, length_bytes).for_each(|(block, _)| written_in[block] = UNKNOWN);
    }

    /// Compares what was read at `offset_bytes` with what belongs there, and adds the findings to
    /// `report`. No writes may be in flight. A phantom has no bytes, so nothing is counted as
    /// verified.
    pub fn check(&self, offset_bytes: u64, buffer: &Buffer, report: &mut Verification) {
        let blocks = Self::blocks(offset_bytes, buffer.len());
        let written_in = self.written_in.borrow();
        buffer.with(|bytes| {
            for (bytes, block) in bytes.chunks_exact(BLOCK_BYTES).zip(blocks) {
                let phase = written_in[block];
                if phase == NEVER || phase == UNKNOWN {
                    report.unknown_bytes += BLOCK_BYTES as u64;
                    continue;
                }
                report.verified_bytes += BLOCK_BYTES as u64;
                if !self.matches(bytes, block, phase) {
                    report.corrupt_bytes += BLOCK_BYTES as u64;
                    report.note(DamagedPlace {
                        offset_bytes: (block * BLOCK_BYTES) as u64,
                        expected_phase: phase,
                        found: self.diagnose(bytes, block),
                    });
                }
            }
        });
    }

    /// Adds a range that could not be read to `report`: blocks with known contents count as
    /// unreadable.
    pub fn unreadable(&self, offset_bytes: u64, length_bytes: usize, why: &str, report: &mut Verification) {
        let written_in = self.written_in.borrow();
        for block in Self::blocks(offset_bytes, length_bytes) {
            match written_in[block] {
                NEVER | UNKNOWN => report.unknown_bytes += BLOCK_BYTES as u64,
                _ => report.unreadable_bytes += BLOCK_BYTES as u64,
            }
        }
        let expected_phase = written_in[Self::blocks(offset_bytes, length_bytes).start];
        report.note(DamagedPlace { offset_bytes, expected_phase, found: format!("unreadable: {why}") });
    }

    fn matches(&self, bytes: &[u8], block: usize, phase: u8) -> bool {
        let (words, key) = self.recipe(block, phase);
        let found = bytes.as_chunks::<8>().0;
        // Differences are gathered, not returned at the first: without a branch the loop runs at
        // memory speed.
        let (random, zeros) = found.split_at(self.random_words);
        let difference = random
            .iter()
            .zip(words)
            .fold(0, |sum, (found, word)| sum | (u64::from_le_bytes(*found) ^ word ^ key));
        zeros.iter().fold(difference, |sum, found| sum | u64::from_le_bytes(*found)) == 0
    }

    /// Best guess at what a damaged block holds.
    fn diagnose(&self, bytes: &[u8], block: usize) -> String {
        if bytes.iter().all(|&byte| byte == 0) {
            return "zeros".into();
        }
        if let Some(phase) = (1..=LAST_PHASE).find(|&phase| self.matches(bytes, block, phase)) {
            return format!("what phase {phase} wrote there");
        }
        let written_in = self.written_in.borrow();
        // Any block, but only with the phase it was last written in: a full search is (blocks x
        // phases) comparisons.
        let other = (0..written_in.len()).find(|&other| {
            let (words, key) = self.recipe(other, written_in[other]);
            bytes[..8] == (words[0] ^ key).to_le_bytes() && self.matches(bytes, other, written_in[other])
        });
        if let Some(other) = other {
            return format!("what belongs at {}", other * BLOCK_BYTES);
        }
        let (words, key) = self.recipe(block, written_in[block]);
        let found = bytes.as_chunks::<8>().0;
        let wrong =
            found.iter().zip(words).filter(|(found, word)| u64::from_le_bytes(**found) != *word ^ key);
        format!("{} of 512 words differ", wrong.count())
    }
}

/// The blocks of a range, each with the bytes of it that the range has.
fn parts(offset_bytes: u64, length_bytes: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    assert!(
        offset_bytes.is_multiple_of(512) && length_bytes.is_multiple_of(512),
        "writes come in multiples of 512 bytes"
    );
    let (start, end) = (offset_bytes as usize, offset_bytes as usize + length_bytes);
    (start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)).map(move |block| {
        let at = block * BLOCK_BYTES;
        (block, start.saturating_sub(at)..(end - at).min(BLOCK_BYTES))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = BLOCK_BYTES as u64;

    fn written(contents: &Contents, offset_bytes: u64, length: usize) -> Buffer {
        let buffer = Buffer::from_bytes(&vec![0; length]);
        contents.write_begins(offset_bytes, &buffer);
        contents.write_ended(offset_bytes, length, true);
        buffer
    }

    fn checked(contents: &Contents, offset_bytes: u64, buffer: &Buffer) -> Verification {
        let mut report = Verification::default();
        contents.check(offset_bytes, buffer, &mut report);
        report
    }

    fn contents() -> Contents {
        let contents = Contents::new(1, 64 * BLOCK);
        contents.next_phase();
        contents
    }

    #[test]
    fn verification_detects_any_single_bit_error() {
        let contents = contents();
        let buffer = written(&contents, 3 * BLOCK, 2 * BLOCK_BYTES);
        let clean = checked(&contents, 3 * BLOCK, &buffer);
        assert_eq!((clean.verified_bytes, clean.corrupt_bytes), (2 * BLOCK, 0));
        assert!(clean.is_clean());
        for (byte, bit) in [(0, 0), (4095, 7), (4096, 3), (8191, 7), (5000, 1)] {
            let damaged = Buffer::from_bytes(&buffer.to_vec());
            damaged.with_mut(|bytes| bytes[byte] ^= 1 << bit);
            let report = checked(&contents, 3 * BLOCK, &damaged);
            assert_eq!(report.corrupt_bytes, BLOCK, "byte {byte} bit {bit}");
            assert_eq!(report.places[0].offset_bytes, 3 * BLOCK + byte as u64 / BLOCK * BLOCK);
            assert_eq!(report.places[0].found, "1 of 512 words differ");
        }
    }

    #[test]
    fn kinds_of_corruption_are_distinguished() {
        let contents = contents();
        let old = written(&contents, 0, BLOCK_BYTES);
        contents.next_phase();
        written(&contents, 0, BLOCK_BYTES);
        let elsewhere = written(&contents, 9 * BLOCK, BLOCK_BYTES);
        let found = |buffer: &Buffer| checked(&contents, 0, buffer).places[0].found.clone();
        assert_eq!(found(&old), "what phase 1 wrote there");
        assert_eq!(found(&elsewhere), format!("what belongs at {}", 9 * BLOCK));
        assert_eq!(found(&Buffer::from_bytes(&[0; BLOCK_BYTES])), "zeros");
        assert_eq!(found(&Buffer::from_bytes(&[1; BLOCK_BYTES])), "512 of 512 words differ");
    }

    #[test]
    fn failed_and_missing_writes_are_not_verified() {
        let contents = contents();
        let buffer = written(&contents, 0, 2 * BLOCK_BYTES);
        contents.write_begins(BLOCK, &Buffer::from_bytes(&[0; BLOCK_BYTES]));
        contents.write_ended(BLOCK, BLOCK_BYTES, false);
        let report = checked(&contents, 0, &buffer);
        assert_eq!((report.verified_bytes, report.unknown_bytes, report.corrupt_bytes), (BLOCK, BLOCK, 0));
        let never = checked(&contents, 8 * BLOCK, &buffer);
        assert_eq!((never.verified_bytes, never.unknown_bytes), (0, 2 * BLOCK));
        let mut unreadable = Verification::default();
        contents.unreadable(0, 2 * BLOCK_BYTES, "drive gone", &mut unreadable);
        assert_eq!((unreadable.unreadable_bytes, unreadable.unknown_bytes), (BLOCK, BLOCK));
        assert!(!unreadable.is_clean() && unreadable.places[0].found.contains("drive gone"));
    }

    #[test]
    fn overlapping_writes_of_a_phase_have_equal_bytes() {
        let contents = contents();
        let first = Buffer::from_bytes(&[0; 4 * BLOCK_BYTES]);
        let second = Buffer::from_bytes(&[0; 4 * BLOCK_BYTES]);
        contents.write_begins(0, &first);
        contents.write_begins(2 * BLOCK, &second);
        assert_eq!(first.to_vec()[2 * BLOCK_BYTES..], second.to_vec()[..2 * BLOCK_BYTES]);
        contents.write_ended(0, 4 * BLOCK_BYTES, true);
        contents.write_ended(2 * BLOCK, 4 * BLOCK_BYTES, true);
    }

    #[test]
    fn partly_written_blocks_are_not_verified() {
        let contents = contents();
        let mut whole = written(&contents, 0, 2 * BLOCK_BYTES).to_vec();
        let part = written(&contents, 512, 1024);
        assert_eq!(part.to_vec(), whole[512..1536], "a part of a phase has the phase's bytes");
        let again = checked(&contents, 0, &Buffer::from_bytes(&whole));
        assert_eq!((again.verified_bytes, again.corrupt_bytes), (2 * BLOCK, 0));
        contents.next_phase();
        let part = written(&contents, BLOCK - 512, 1024).to_vec();
        whole[BLOCK_BYTES - 512..BLOCK_BYTES + 512].copy_from_slice(&part);
        let mixed = checked(&contents, 0, &Buffer::from_bytes(&whole));
        assert_eq!((mixed.verified_bytes, mixed.unknown_bytes), (0, 2 * BLOCK));
        let fresh = written(&contents, 0, 2 * BLOCK_BYTES);
        assert_eq!(checked(&contents, 0, &fresh).verified_bytes, 2 * BLOCK);
        contents.discarded(0, 512);
        assert_eq!(checked(&contents, 0, &fresh).unknown_bytes, BLOCK);
    }

    #[test]
    fn compressible_blocks_have_zeros_and_are_verified() {
        for (data, zeros) in [(Data::Unique, 0), (Data::Compressible(75), 3072), (Data::Zeros, 4096)] {
            let contents = Contents::new(3, 16 * BLOCK).with_data(data);
            contents.next_phase();
            let mut bytes = written(&contents, 0, 2 * BLOCK_BYTES).to_vec();
            let tail = bytes[..BLOCK_BYTES].iter().rev().take_while(|byte| **byte == 0).count();
            assert!((zeros..zeros + 4).contains(&tail), "{data:?}: {tail}");
            assert!(checked(&contents, 0, &Buffer::from_bytes(&bytes)).is_clean());
            bytes[BLOCK_BYTES - 1] ^= 1;
            let damaged = checked(&contents, 0, &Buffer::from_bytes(&bytes));
            assert_eq!(damaged.corrupt_bytes, BLOCK, "{data:?}");
        }
    }

    #[test]
    #[should_panic(expected = "no write is in flight")]
    fn phases_do_not_change_under_writes() {
        let contents = contents();
        contents.write_begins(0, &Buffer::from_bytes(&[0; BLOCK_BYTES]));
        contents.next_phase();
    }

    #[test]
    fn blocks_and_phases_and_seeds_differ_everywhere() {
        let mut seen = std::collections::HashSet::new();
        for seed in 0..2 {
            let contents = Contents::new(seed, 64 * BLOCK);
            for _ in 0..3 {
                contents.next_phase();
                let bytes = written(&contents, 0, 64 * BLOCK_BYTES).to_vec();
                for word in bytes.as_chunks::<8>().0 {
                    assert!(seen.insert(*word), "two equal words of 8 bytes in {} MiB", seen.len() >> 17);
                }
            }
        }
    }

    #[test]
    fn phase_numbers_wrap_around_the_reserved_ones() {
        let contents = contents();
        for _ in 0..600 {
            contents.next_phase();
            assert!(!matches!(contents.phase.get(), NEVER | UNKNOWN));
        }
    }

    #[test]
    fn phantom_buffers_count_as_unverified() {
        let contents = contents();
        let phantom = Buffer::phantom(BLOCK_BYTES);
        contents.write_begins(0, &phantom);
        contents.write_ended(0, BLOCK_BYTES, true);
        assert_eq!(checked(&contents, 0, &phantom), Verification::default());
    }
}
