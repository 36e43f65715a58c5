//! The summary at a segment's end, and the head of a staging record: the same format.
//!
//! A summary names the volume, the use of the segment (its sequence), and for each block its
//! logical address, CRC-32C and birth; also the ranges that were discarded. It is the only
//! description of a segment that recovery and the cleaner read. Numbers are little endian:
//!
//! ```text
//!  0  8 bytes  "SWLOGSUM"
//!  8  4        CRC-32C of all that follows, up to the length
//! 12  1        kind: 0 data of clients, 1 and 2 survivors of cleaning, 3 map, 4 staging record
//! 16  8        volume
//! 24  8        sequence; of a staging record its number
//! 32  8        last staging record whose blocks are in this segment or an earlier one
//! 40  4        0
//! 44  4        slots
//! 48  4        holes
//! 52  4        length of the summary, bytes
//! 64  16 each  slots: logical block (all ones: unused; else bit 62: late), CRC-32C, birth
//!     16 each  holes: first logical block (6), number of blocks (6), birth (4)
//! ```
//!
//! Holes of a birth precede its slots in time. Faults expected: any bytes.

use crate::map::entry::{Entry, Value};
use crate::map::lineage::Birth;

use crate::mutation::{Mutation, is_chosen};

/// Bytes before the slots.
pub(crate) const HEAD_BYTES: usize = 64;
/// Bytes of a slot or hole.
pub(crate) const ENTRY_BYTES: usize = 16;
/// Logical block of an unused slot.
pub(crate) const UNUSED: u64 = u64::MAX;
/// Bit of a slot's logical block that marks a late version.
const LATE: u64 = 1 << 62;

const MAGIC: [u8; 8] = *b"SWLOGSUM";

/// Kind of a segment's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Data of clients. The number is how often they survived cleaning, at most 2.
    Data(u8),
    /// Pages of the map.
    Map,
    /// A record in the staging area, not a segment.
    Staged,
}

impl Kind {
    fn number(self) -> u8 {
        match self {
            Self::Data(survived) => survived,
            Self::Map => 3,
            Self::Staged => 4,
        }
    }

    fn of(number: u8) -> Option<Self> {
        match number {
            0..=2 => Some(Self::Data(number)),
            3 => Some(Self::Map),
            4 => Some(Self::Staged),
            _ => None,
        }
    }
}

/// One block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Logical block, or [`UNUSED`].
    pub(crate) lba: u64,
    pub(crate) crc: u32,
    pub(crate) birth: Birth,
    /// True if the cleaner moved it while a newer version existed.
    pub(crate) is_late: bool,
}

/// A discarded range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hole {
    pub(crate) lba: u64,
    pub(crate) count: u64,
    pub(crate) birth: Birth,
}

impl Hole {
    /// The entry of the map.
    pub(crate) fn entry(&self) -> Entry {
        let Self { lba, count, birth } = *self;
        Entry { lba, count, birth, is_late: false, value: Value::Hole }
    }
}

/// Description of a segment or staging record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) kind: Kind,
    pub(crate) volume: u64,
    pub(crate) sequence: u64,
    pub(crate) staged_through: u64,
    pub(crate) slots: Vec<Slot>,
    pub(crate) holes: Vec<Hole>,
}

impl Summary {
    /// Length of the encoded summary, bytes.
    pub(crate) fn length_bytes(&self) -> usize {
        HEAD_BYTES + (self.slots.len() + self.holes.len()) * ENTRY_BYTES
    }

    /// Writes the summary to the beginning of `to`.
    pub(crate) fn encode(&self, to: &mut [u8]) {
        let length = self.length_bytes();
        let to = &mut to[..length];
        to.fill(0);
        to[..8].copy_from_slice(&MAGIC);
        to[12] = self.kind.number();
        to[16..24].copy_from_slice(&self.volume.to_le_bytes());
        to[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        to[32..40].copy_from_slice(&self.staged_through.to_le_bytes());
        to[44..48].copy_from_slice(&(self.slots.len() as u32).to_le_bytes());
        to[48..52].copy_from_slice(&(self.holes.len() as u32).to_le_bytes());
        to[52..56].copy_from_slice(&(length as u32).to_le_bytes());
        let mut entries = to[HEAD_BYTES..].chunks_exact_mut(ENTRY_BYTES);
        for slot in &self.slots {
            let entry = entries.next().expect("counted");
            let lba = slot.lba | if slot.is_late { LATE } else { 0 };
            entry[..8].copy_from_slice(&lba.to_le_bytes());
            entry[8..12].copy_from_slice(&slot.crc.to_le_bytes());
            entry[12..].copy_from_slice(&slot.birth.to_le_bytes());
        }
        for hole in &self.holes {
            let entry = entries.next().expect("counted");
            entry[..6].copy_from_slice(&hole.lba.to_le_bytes()[..6]);
            entry[6..12].copy_from_slice(&hole.count.to_le_bytes()[..6]);
            entry[12..].copy_from_slice(&hole.birth.to_le_bytes());
        }
        let crc = crc32c(&to[12..]);
        to[8..12].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads a summary from the beginning of `from`; `None` if there is no whole one.
    pub(crate) fn decode(from: &[u8]) -> Option<Self> {
        let head = from.get(..HEAD_BYTES)?;
        let u32_at = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        if head[..8] != MAGIC {
            return None;
        }
        let (slots, holes, length) = (u32_at(44) as usize, u32_at(48) as usize, u32_at(52) as usize);
        let body = from.get(HEAD_BYTES..length)?;
        if body.len() != (slots + holes).checked_mul(ENTRY_BYTES)? {
            return None;
        }
        let is_believed = is_chosen(Mutation::SummaryWithoutChecksum);
        if crc32c(&from[12..length]) != u32_at(8) && !is_believed {
            return None;
        }
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
        let slot = |entry: &[u8]| {
            let lba = number(&entry[..8]);
            let is_late = lba != UNUSED && lba & LATE != 0;
            let (crc, birth) = (number(&entry[8..12]) as u32, number(&entry[12..]) as u32);
            Slot { lba: if is_late { lba & !LATE } else { lba }, crc, birth, is_late }
        };
        let hole = |entry: &[u8]| {
            let birth = number(&entry[12..]) as u32;
            Hole { lba: number(&entry[..6]), count: number(&entry[6..12]), birth }
        };
        let (of_slots, of_holes) = body.split_at(slots * ENTRY_BYTES);
        Some(Self {
            kind: Kind::of(head[12])?,
            volume: u64_at(16),
            sequence: u64_at(24),
            staged_through: u64_at(32),
            slots: of_slots.chunks_exact(ENTRY_BYTES).map(slot).collect(),
            holes: of_holes.chunks_exact(ENTRY_BYTES).map(hole).collect(),
        })
    }
}

/// CRC-32C of some bytes.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_drive::SplitMix64;

    #[test]
    fn damaged_summaries_are_refused() {
        let slots =
            (0..20).map(|n| Slot { lba: n * 7, crc: n as u32 * 11, birth: 3, is_late: n % 2 == 0 }).collect();
        let summary = Summary {
            kind: Kind::Data(1),
            volume: 77,
            sequence: 1 << 40,
            staged_through: 9,
            slots,
            holes: vec![Hole { lba: 5, count: 1 << 33, birth: 7 }, Hole { lba: 0, count: 1, birth: 8 }],
        };
        let mut bytes = vec![0xaa; 4096];
        summary.encode(&mut bytes);
        assert_eq!(Summary::decode(&bytes).as_ref(), Some(&summary));
        for length in 0..summary.length_bytes() {
            assert_eq!(Summary::decode(&bytes[..length]), None);
        }
        let mut random = SplitMix64::new(1);
        for _ in 0..2000 {
            let mut damaged = bytes.clone();
            let at = random.below(summary.length_bytes() as u64) as usize;
            damaged[at] ^= 1 << random.below(8);
            assert_eq!(Summary::decode(&damaged), None, "byte {at}");
        }
    }
}
