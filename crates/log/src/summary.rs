//! The summary at a segment's end, and the head of a staging record: the same format.
//!
//! A summary names the volume, the use of the segment (its sequence), and for each block its
//! logical address, CRC-32C and birth epoch; also the ranges that were discarded. It is the only
//! description of a segment that recovery and the cleaner read. Numbers are little endian:
//!
//! ```text
//!  0  8 bytes  "SWLOGSUM"
//!  8  4        CRC-32C of all that follows, up to the length
//! 12  1        kind: 0 data of clients, 1 and 2 survivors of cleaning, 3 map, 4 staging record
//! 16  8        volume
//! 24  8        sequence; of a staging record its number
//! 32  8        last staging record whose blocks are in this segment or an earlier one
//! 40  4        epoch
//! 44  4        slots
//! 48  4        holes
//! 52  4        length of the summary, bytes
//! 64  16 each  slots: logical block (all ones: unused), CRC-32C, birth epoch
//!     16 each  holes: first logical block, number of blocks
//! ```
//!
//! Holes precede the slots in time. Faults expected: any bytes.

/// Bytes before the slots.
pub(crate) const HEAD_BYTES: usize = 64;
/// Bytes of a slot or hole.
pub(crate) const ENTRY_BYTES: usize = 16;
/// Logical block of an unused slot.
pub(crate) const UNUSED: u64 = u64::MAX;

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
    /// Epoch in which a client wrote it.
    pub(crate) birth: u32,
}

/// Description of a segment or staging record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) kind: Kind,
    pub(crate) volume: u64,
    pub(crate) sequence: u64,
    pub(crate) staged_through: u64,
    pub(crate) epoch: u32,
    pub(crate) slots: Vec<Slot>,
    /// Discarded ranges: first logical block and number of blocks.
    pub(crate) holes: Vec<(u64, u64)>,
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
        to[40..44].copy_from_slice(&self.epoch.to_le_bytes());
        to[44..48].copy_from_slice(&(self.slots.len() as u32).to_le_bytes());
        to[48..52].copy_from_slice(&(self.holes.len() as u32).to_le_bytes());
        to[52..56].copy_from_slice(&(length as u32).to_le_bytes());
        let mut entries = to[HEAD_BYTES..].chunks_exact_mut(ENTRY_BYTES);
        for slot in &self.slots {
            let entry = entries.next().expect("counted");
            entry[..8].copy_from_slice(&slot.lba.to_le_bytes());
            entry[8..12].copy_from_slice(&slot.crc.to_le_bytes());
            entry[12..].copy_from_slice(&slot.birth.to_le_bytes());
        }
        for (lba, count) in &self.holes {
            let entry = entries.next().expect("counted");
            entry[..8].copy_from_slice(&lba.to_le_bytes());
            entry[8..].copy_from_slice(&count.to_le_bytes());
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
        if crc32c(&from[12..length]) != u32_at(8) {
            return None;
        }
        let mut entries = body.chunks_exact(ENTRY_BYTES).map(|entry| {
            let (first, second) = entry.split_at(8);
            let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
            (number(first), number(second))
        });
        let slots = entries
            .by_ref()
            .take(slots)
            .map(|(lba, rest)| Slot { lba, crc: rest as u32, birth: (rest >> 32) as u32 })
            .collect();
        Some(Self {
            kind: Kind::of(head[12])?,
            volume: u64_at(16),
            sequence: u64_at(24),
            staged_through: u64_at(32),
            epoch: u32_at(40),
            slots,
            holes: entries.collect(),
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
        let slots = (0..20).map(|n| Slot { lba: n * 7, crc: n as u32 * 11, birth: 3 }).collect();
        let summary = Summary {
            kind: Kind::Data(1),
            volume: 77,
            sequence: 1 << 40,
            staged_through: 9,
            epoch: 3,
            slots,
            holes: vec![(5, 1 << 33), (0, 1)],
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
