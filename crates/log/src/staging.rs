//! The staging area: records of blocks that a flush found in a segment that is not full yet.
//!
//! A record is a summary, padded to whole blocks, and its blocks behind it. It is written with one
//! forced write at the same place of as many members as may be lost and one more; the members take
//! turns. The area is a ring. A record is needed until the segment with its blocks is durable;
//! every segment of client data says up to which record it and its predecessors contain them.
//!
//! Recovery reads the whole area of each member and applies the records after those, in order.

use std::collections::{BTreeMap, VecDeque};

use crate::shape::BLOCK_BYTES;
use crate::summary::{Kind, Summary, crc32c};

/// A record that is still needed.
struct Record {
    number: u64,
    start: u64,
}

/// State of the ring.
pub(crate) struct Staging {
    ring_bytes: u64,
    /// Number of the next record.
    next: u64,
    head: u64,
    live: VecDeque<Record>,
    /// Member that has the next record first.
    pub(crate) turn: usize,
    /// Last record whose blocks are in a sealed segment, by the segment's sequence.
    sealed: BTreeMap<u64, u64>,
}

impl Staging {
    pub(crate) fn new(ring_bytes: u64, last: u64) -> Self {
        Self { ring_bytes, next: last + 1, head: 0, live: VecDeque::new(), turn: 0, sealed: BTreeMap::new() }
    }

    /// Number of the last record.
    pub(crate) fn last(&self) -> u64 {
        self.next - 1
    }

    /// Takes room for a record: its number, and its offset in the area. `None` if there is no
    /// room.
    pub(crate) fn reserve(&mut self, length: u64) -> Option<(u64, u64)> {
        let start = match self.live.front() {
            None if length <= self.ring_bytes => 0,
            None => return None,
            Some(tail) if self.head > tail.start => {
                if self.head + length <= self.ring_bytes {
                    self.head
                } else if length <= tail.start {
                    0
                } else {
                    return None;
                }
            }
            Some(tail) if self.head + length <= tail.start => self.head,
            Some(_) => return None,
        };
        let number = self.next;
        self.next += 1;
        self.head = start + length;
        self.live.push_back(Record { number, start });
        Some((number, start))
    }

    /// Notes that the blocks of all records until now are in this segment or an earlier one.
    pub(crate) fn sealed(&mut self, sequence: u64) {
        self.sealed.insert(sequence, self.last());
    }

    /// Notes that all segments before this sequence are durable.
    pub(crate) fn durable_before(&mut self, sequence: u64) {
        while let Some(entry) = self.sealed.first_entry().filter(|entry| *entry.key() < sequence) {
            let through = entry.remove();
            while self.live.front().is_some_and(|record| record.number <= through) {
                self.live.pop_front();
            }
        }
    }
}

/// Blocks of a record's summary.
pub(crate) fn head_blocks(summary: &Summary) -> u64 {
    (summary.length_bytes() as u64).div_ceil(BLOCK_BYTES)
}

/// A record that was found: its summary, and the offset of its first block in the area.
pub(crate) struct FoundRecord {
    pub(crate) summary: Summary,
    pub(crate) first_block: usize,
}

/// Finds the whole records of a volume in a copy of the area.
pub(crate) fn find_records(area: &[u8], volume: u64) -> Vec<FoundRecord> {
    let block = BLOCK_BYTES as usize;
    let mut found = Vec::new();
    for start in (0..area.len()).step_by(block) {
        let Some(summary) = Summary::decode(&area[start..]) else { continue };
        if summary.kind != Kind::Staged || summary.volume != volume {
            continue;
        }
        let first_block = start + head_blocks(&summary) as usize * block;
        let blocks = area.get(first_block..).unwrap_or_default().chunks_exact(block);
        let is_whole = blocks.len() >= summary.slots.len()
            && summary.slots.iter().zip(blocks).all(|(slot, bytes)| crc32c(bytes) == slot.crc);
        if is_whole {
            found.push(FoundRecord { summary, first_block });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_drive::SplitMix64;

    #[test]
    fn records_in_use_do_not_overlap() {
        let mut random = SplitMix64::new(1);
        let mut staging = Staging::new(64, 0);
        let mut live: Vec<(u64, u64, u64)> = Vec::new();
        let (mut sequence, mut refused) = (0, 0);
        for _ in 0..5000 {
            let length = 1 + random.below(20);
            match staging.reserve(length) {
                Some((number, start)) => {
                    assert!(start + length <= 64);
                    assert!(live.iter().all(|&(_, from, to)| to <= start || start + length <= from));
                    live.push((number, start, start + length));
                }
                None => {
                    refused += 1;
                    sequence += 1;
                    staging.sealed(sequence);
                    staging.durable_before(sequence + 1);
                    live.clear();
                }
            }
            if random.chance(0.1) {
                sequence += 1;
                staging.sealed(sequence);
            }
            if random.chance(0.1) {
                let through = staging.sealed.values().max().copied();
                staging.durable_before(sequence + 1);
                live.retain(|(number, ..)| through.is_none_or(|through| *number > through));
            }
        }
        assert!(refused > 10, "{refused}");
    }
}
