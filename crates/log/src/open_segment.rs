//! A segment in memory that is being filled, by clients or by the cleaner.
//!
//! A block that is written again before the segment is sealed replaces its older version. Blocks
//! that were dropped (discarded, or overwritten while the cleaner was moving them) leave a free
//! slot.

use std::collections::BTreeSet;

use stripewise_drive::{Buffer, BufferPool};

use crate::map::entry::{Block, Value};
use crate::map::table::Table;
use crate::shape::{BLOCK_BYTES, Segments};
use crate::summary::{Kind, Slot, Summary, UNUSED, crc32c};

/// Block that the cleaner moves: the segment that it comes from.
const FROM_CLIENT: u32 = u32::MAX;

/// Holes, and blocks with their bytes.
pub(crate) type Unstaged = (Vec<(u64, u64)>, Vec<(Slot, Buffer)>);

/// State of a logical block in an open segment.
pub(crate) enum Content {
    /// Its bytes.
    Bytes(Buffer),
    /// Discarded.
    Zeroes,
}

/// A segment that is being filled.
pub(crate) struct OpenSegment {
    /// Distinguishes it from the segments filled before and after it.
    pub(crate) number: u64,
    kind: Kind,
    payload: usize,
    max_holes: usize,
    /// `None` until the first block.
    buffer: Option<Buffer>,
    /// Contents by logical block; a block's place is its slot.
    index: Table,
    slots: Vec<Slot>,
    /// Segment that each slot's block comes from.
    origins: Vec<u32>,
    free_slots: Vec<u32>,
    /// Discarded ranges in order of time.
    holes: Vec<(u64, u64)>,
    /// Blocks that no staging record has.
    unstaged: BTreeSet<u64>,
    /// Number of holes that staging records have.
    staged_holes: usize,
}

impl OpenSegment {
    pub(crate) fn new(number: u64, kind: Kind, segments: &Segments) -> Self {
        Self {
            number,
            kind,
            payload: segments.payload as usize,
            max_holes: segments.max_holes,
            buffer: None,
            index: Table::default(),
            slots: Vec::new(),
            origins: Vec::new(),
            free_slots: Vec::new(),
            holes: Vec::new(),
            unstaged: BTreeSet::new(),
            staged_holes: 0,
        }
    }

    /// True if clients fill it, not the cleaner.
    pub(crate) fn is_of_clients(&self) -> bool {
        self.kind == Kind::Data(0)
    }

    /// True if there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.used() == 0 && self.holes.is_empty()
    }

    /// Blocks in it.
    pub(crate) fn used(&self) -> usize {
        self.slots.len() - self.free_slots.len()
    }

    /// True if another block and another hole have room.
    pub(crate) fn has_room(&self) -> bool {
        self.used() < self.payload && self.holes.len() < self.max_holes
    }

    /// True if something in it is in no staging record.
    pub(crate) fn is_unstaged(&self) -> bool {
        !self.unstaged.is_empty() || self.staged_holes < self.holes.len()
    }

    /// Content of a logical block; `None` if it is not in this segment.
    pub(crate) fn get(&self, lba: u64) -> Option<Content> {
        match self.index.get(lba)? {
            Value::Hole(_) => Some(Content::Zeroes),
            Value::Block(block) => Some(Content::Bytes(self.block(block.place as usize))),
        }
    }

    fn block(&self, slot: usize) -> Buffer {
        let start = slot * BLOCK_BYTES as usize;
        let buffer = self.buffer.as_ref().expect("there since the first block");
        buffer.slice(start..start + BLOCK_BYTES as usize)
    }

    /// Adds or replaces a block of a client.
    pub(crate) fn write(&mut self, lba: u64, data: &Buffer, birth: u32, pool: &BufferPool) {
        self.put(lba, data, Slot { lba, crc: 0, birth }, FROM_CLIENT, pool);
        self.unstaged.insert(lba);
    }

    /// Adds a block that the cleaner moves.
    pub(crate) fn move_in(&mut self, data: &Buffer, slot: Slot, origin: u32, pool: &BufferPool) {
        self.put(slot.lba, data, slot, origin, pool);
    }

    fn put(&mut self, lba: u64, data: &Buffer, slot: Slot, origin: u32, pool: &BufferPool) {
        if self.buffer.is_none() {
            let blocks = self.payload + self.summary_blocks();
            self.buffer = Some(pool.allocate(blocks * BLOCK_BYTES as usize));
        }
        let at = match self.index.get(lba) {
            Some(Value::Block(block)) => block.place as usize,
            _ => self.free_slots.pop().map_or(self.slots.len(), |at| at as usize),
        };
        assert!(at < self.payload, "room was checked");
        if at == self.slots.len() {
            self.slots.push(slot);
            self.origins.push(origin);
        } else {
            self.slots[at] = slot;
            self.origins[at] = origin;
        }
        self.index.put_block(lba, Block { place: at as u64, crc: 0, use_number: 0, birth: slot.birth });
        self.block(at).copy_from(data);
    }

    fn summary_blocks(&self) -> usize {
        let bytes =
            crate::summary::HEAD_BYTES + (self.payload + self.max_holes) * crate::summary::ENTRY_BYTES;
        bytes.div_ceil(BLOCK_BYTES as usize)
    }

    /// Discards a range.
    pub(crate) fn discard(&mut self, lba: u64, count: u64) {
        let mut dropped = Vec::new();
        self.index.put_hole(lba, count, &mut |block| dropped.push(block.place as usize));
        dropped.into_iter().for_each(|slot| self.free(slot));
        self.holes.push((lba, count));
    }

    /// Drops the blocks of a range, which were overwritten elsewhere. For a segment without holes.
    pub(crate) fn drop_range(&mut self, lba: u64, count: u64) {
        while let Some(entry) = self.index.at_or_after(lba).filter(|entry| entry.lba < lba + count) {
            self.index.remove(entry.lba);
            if let Value::Block(block) = entry.value {
                self.free(block.place as usize);
            }
        }
    }

    fn free(&mut self, slot: usize) {
        let lba = std::mem::replace(&mut self.slots[slot].lba, UNUSED);
        self.unstaged.remove(&lba);
        self.free_slots.push(slot as u32);
    }

    /// Segments that its blocks come from.
    pub(crate) fn origins(&self) -> impl Iterator<Item = u32> + '_ {
        let used = self.slots.iter().zip(&self.origins).filter(|(slot, _)| slot.lba != UNUSED);
        used.map(|(_, &origin)| origin)
    }

    /// Number of blocks and of holes that are in no staging record.
    pub(crate) fn unstaged(&self) -> (usize, usize) {
        (self.unstaged.len(), self.holes.len() - self.staged_holes)
    }

    /// Contents that are in no staging record: holes, and blocks with their bytes. They count as
    /// staged from now on.
    pub(crate) fn take_unstaged(&mut self) -> Unstaged {
        let holes = self.holes[self.staged_holes..].to_vec();
        self.staged_holes = self.holes.len();
        let lbas = std::mem::take(&mut self.unstaged);
        let blocks = lbas.into_iter().map(|lba| {
            let Some(Value::Block(block)) = self.index.get(lba) else {
                unreachable!("dropped with its slot")
            };
            (self.slots[block.place as usize], self.block(block.place as usize))
        });
        (holes, blocks.collect())
    }

    /// Completes the summary and returns it with the segment's bytes.
    pub(crate) fn seal(
        mut self,
        volume: u64,
        sequence: u64,
        staged_through: u64,
        epoch: u32,
        pool: &BufferPool,
    ) -> (Summary, Buffer) {
        let blocks = self.payload + self.summary_blocks();
        let buffer = self.buffer.take().unwrap_or_else(|| pool.allocate(blocks * BLOCK_BYTES as usize));
        let payload_bytes = self.payload * BLOCK_BYTES as usize;
        buffer.with_mut(|bytes| {
            for (slot, block) in self.slots.iter_mut().zip(bytes.chunks_exact(BLOCK_BYTES as usize)) {
                if slot.lba != UNUSED {
                    slot.crc = crc32c(block);
                }
            }
            bytes[self.slots.len() * BLOCK_BYTES as usize..].fill(0);
        });
        let summary = Summary {
            kind: self.kind,
            volume,
            sequence,
            staged_through,
            epoch,
            slots: self.slots,
            holes: self.holes,
        };
        buffer.slice(payload_bytes..buffer.len()).with_mut(|bytes| summary.encode(bytes));
        (summary, buffer)
    }
}
