//! Verifiable contents: the bytes of every 4 KiB block of a target depend on the block, this run's
//! seed and the *phase* in which it was written last.
//!
//! A phase is one fill or one load. All writes of one phase to a block carry identical bytes, so
//! overlapping writes in flight need no order, and one byte of memory per block suffices to compare
//! every byte in the end. Between phases nothing may be in flight (asserted). The bytes are a fixed
//! random megabyte at a block-dependent place, combined with a block-dependent key: incompressible,
//! no two blocks alike, and generated about as fast as memory is copied. The report distinguishes
//! the expected faults: lost writes (bytes of an older phase), misdirected writes (bytes of another
//! block), zeros, anything else. Writes may be multiples of 512 bytes: a block that was only partly
//! written in its phase is not checked until it is written whole. Checks use multiples of 4 KiB.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use serde::{Deserialize, Serialize};
use stripewise_drive::Buffer;

use crate::loads::workload::{mix, random_stream};

/// Unit of tracking and checking.
pub const BLOCK_BYTES: usize = 4096;

const WORDS_PER_BLOCK: usize = BLOCK_BYTES / 8;
const BASE_BYTES: usize = 1 << 20;
/// Alignment of places in the base, in words: one cache line of the processor.
const PLACE_WORDS: usize = 8;

/// No phase has written the block: its contents are unknown.
const UNWRITTEN: u8 = 0;
/// A write of the block failed: it holds old or new bytes.
const UNKNOWN: u8 = 255;
const LAST_PHASE: u8 = 254;

/// Maximum number of damaged places described; others are only counted.
const PLACES_KEPT: usize = 8;

/// Compressibility of written data, for drives, file systems or controllers that compress or
/// deduplicate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Data {
    /// No two blocks alike, none of them compressible.
    #[default]
    Unique,
    /// As above, but this percentage of each 4 KiB block is zeros.
    Compressible(u32),
    /// Zeros alone. Lost and misdirected writes cannot be detected.
    Zeros,
}

impl Data {
    /// Number of words of a block that are not zero.
    fn random_words(self) -> usize {
        match self {
            Self::Unique => WORDS_PER_BLOCK,
            Self::Compressible(percent) => WORDS_PER_BLOCK * (100 - percent.min(100) as usize) / 100,
            Self::Zeros => 0,
        }
    }
}

/// The expected contents of one target.
pub struct Contents {
    seed: u64,
    base: Vec<u64>,
    /// Number of random words at the beginning of each block; the others are zero.
    random_words: usize,
    /// Phase of the last write of each block.
    written_in: RefCell<Vec<u8>>,
    phase: Cell<u8>,
    writes_in_flight: Cell<u64>,
}

/// Result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    /// Labels of the members missing during the verification.
    pub missing_drives: Vec<String>,
    /// Bytes read and compared.
    pub verified_bytes: u64,
    /// Bytes in compared blocks that differ from the written ones.
    pub corrupt_bytes: u64,
    /// Bytes that could not be read.
    pub unreadable_bytes: u64,
    /// Bytes in blocks that were never written, or whose last write failed, so that their contents
    /// are undefined.
    pub unknown_bytes: u64,
    /// The first damaged places.
    pub places: Vec<DamagedPlace>,
    /// Duration.
    pub seconds: f64,
}

/// A block that differs from the written one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedPlace {
    /// Offset in bytes from the target's start.
    pub offset_bytes: u64,
    /// Phase of its last write.
    pub expected_phase: u8,
    /// Contents found, or the reason why it is unreadable.
    pub found: String,
}

impl Verification {
    /// True if every written byte read back unchanged.
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
    /// Tracks a target of `capacity_bytes`, of which whole 4 KiB blocks are used. Takes one byte
    /// per block, and a megabyte.
    pub fn new(seed: u64, capacity_bytes: u64) -> Self {
        let mut random = random_stream(seed, 0);
        let base = (0..BASE_BYTES / 8 + WORDS_PER_BLOCK).map(|_| random.next_u64()).collect();
        let blocks = usize::try_from(capacity_bytes / BLOCK_BYTES as u64).expect("a map that fits memory");
        Self {
            seed,
            base,
            random_words: WORDS_PER_BLOCK,
            written_in: RefCell::new(vec![UNWRITTEN; blocks]),
            phase: Cell::new(UNWRITTEN),
            writes_in_flight: Cell::new(0),
        }
    }

    /// Sets the compressibility.
    pub(crate) fn with_data(self, data: Data) -> Self {
        Self { random_words: data.random_words(), ..self }
    }

    /// Tracked bytes of the target: its capacity in whole blocks.
    pub(crate) fn covered_bytes(&self) -> u64 {
        (self.written_in.borrow().len() * BLOCK_BYTES) as u64
    }

    /// Starts the next phase: later writes carry different bytes. Phase numbers repeat after 254
    /// phases, which only hides a write lost 254 phases ago. Panics while writes are in flight.
    pub fn next_phase(&self) {
        assert_eq!(self.writes_in_flight.get(), 0, "phases change only while no write is in flight");
        let phase = self.phase.get();
        self.phase.set(if phase >= LAST_PHASE { 1 } else { phase + 1 });
    }

    fn blocks(offset_bytes: u64, length_bytes: usize) -> Range<usize> {
        assert!(
            offset_bytes.is_multiple_of(BLOCK_BYTES as u64) && length_bytes.is_multiple_of(BLOCK_BYTES),
            "checked contents must be whole blocks of 4 KiB"
        );
        let first = (offset_bytes / BLOCK_BYTES as u64) as usize;
        first..first + length_bytes / BLOCK_BYTES
    }

    /// The parts that a block's bytes are computed from: words of `base` at a place, and the key.
    fn recipe(&self, block: usize, phase: u8) -> (&[u64], u64) {
        let identity = mix(self.seed ^ mix(((block as u64) << 8) | u64::from(phase)));
        let place = (identity as usize % (BASE_BYTES / 8 / PLACE_WORDS)) * PLACE_WORDS;
        (&self.base[place..place + WORDS_PER_BLOCK], mix(identity))
    }

    /// Fills `buffer` with this phase's bytes for `offset_bytes` and records a write in flight. To
    /// be followed by [`Self::write_ended`].
    pub fn write_begins(&self, offset_bytes: u64, buffer: &Buffer) {
        assert!(self.phase.get() != UNWRITTEN, "no phase was started");
        self.writes_in_flight.set(self.writes_in_flight.get() + 1);
        let mut written_in = self.written_in.borrow_mut();
        buffer.with_mut(|mut bytes| {
            for (block, part) in parts(offset_bytes, bytes.len()) {
                let (to, rest) = std::mem::take(&mut bytes).split_at_mut(part.len());
                bytes = rest;
                self.make(block, &part, to);
                let is_whole = part.len() == BLOCK_BYTES;
                // A partial write of the phase's bytes leaves a block of that phase unchanged.
                if is_whole || written_in[block] != self.phase.get() {
                    written_in[block] = if is_whole { self.phase.get() } else { UNKNOWN };
                }
            }
        });
    }

    /// Generates this phase's bytes for a part of a block.
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

    /// Ends a write begun with [`Self::write_begins`]. Blocks of a failed one hold old or new bytes
    /// and are not checked until they are written again.
    pub fn write_ended(&self, offset_bytes: u64, length_bytes: usize, succeeded: bool) {
        self.writes_in_flight.set(self.writes_in_flight.get() - 1);
        if !succeeded {
            let mut written_in = self.written_in.borrow_mut();
            parts(offset_bytes, length_bytes).for_each(|(block, _)| written_in[block] = UNKNOWN);
        }
    }

    /// Records a discard: the range's contents are unknown until it is written again.
    pub fn discarded(&self, offset_bytes: u64, length_bytes: usize) {
        let mut written_in = self.written_in.borrow_mut();
        parts(offset_bytes, length_bytes).for_each(|(block, _)| written_in[block] = UNKNOWN);
    }

    /// Compares the bytes read at `offset_bytes` with the expected ones, and adds the findings to
    /// `report`. No writes may be in flight. A phantom has no bytes, so nothing counts as verified.
    pub fn check(&self, offset_bytes: u64, buffer: &Buffer, report: &mut Verification) {
        let blocks = Self::blocks(offset_bytes, buffer.len());
        let written_in = self.written_in.borrow();
        buffer.with(|bytes| {
            for (bytes, block) in bytes.chunks_exact(BLOCK_BYTES).zip(blocks) {
                let phase = written_in[block];
                if phase == UNWRITTEN || phase == UNKNOWN {
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

    /// Adds an unreadable range to `report`: blocks with known contents count as unreadable.
    pub fn unreadable(&self, offset_bytes: u64, length_bytes: usize, why: &str, report: &mut Verification) {
        let written_in = self.written_in.borrow();
        for block in Self::blocks(offset_bytes, length_bytes) {
            match written_in[block] {
                UNWRITTEN | UNKNOWN => report.unknown_bytes += BLOCK_BYTES as u64,
                _ => report.unreadable_bytes += BLOCK_BYTES as u64,
            }
        }
        let expected_phase = written_in[Self::blocks(offset_bytes, length_bytes).start];
        report.note(DamagedPlace { offset_bytes, expected_phase, found: format!("unreadable: {why}") });
    }

    fn matches(&self, bytes: &[u8], block: usize, phase: u8) -> bool {
        let (words, key) = self.recipe(block, phase);
        let found = bytes.as_chunks::<8>().0;
        // Differences are accumulated, without an early return: without a branch the loop runs at
        // memory speed.
        let (random, zeros) = found.split_at(self.random_words);
        let difference = random
            .iter()
            .zip(words)
            .fold(0, |sum, (found, word)| sum | (u64::from_le_bytes(*found) ^ word ^ key));
        zeros.iter().fold(difference, |sum, found| sum | u64::from_le_bytes(*found)) == 0
    }

    /// Guesses the contents of a damaged block.
    fn diagnose(&self, bytes: &[u8], block: usize) -> String {
        if bytes.iter().all(|&byte| byte == 0) {
            return "zeros".into();
        }
        if let Some(phase) = (1..=LAST_PHASE).find(|&phase| self.matches(bytes, block, phase)) {
            return format!("what phase {phase} wrote there");
        }
        let written_in = self.written_in.borrow();
        // Any block, but only with its last phase: a full search is (blocks x phases) comparisons.
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

/// The blocks of a range, each with the bytes of it that the range covers.
fn parts(offset_bytes: u64, length_bytes: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    assert!(
        offset_bytes.is_multiple_of(512) && length_bytes.is_multiple_of(512),
        "writes must be multiples of 512 bytes"
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
            assert!(!matches!(contents.phase.get(), UNWRITTEN | UNKNOWN));
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
