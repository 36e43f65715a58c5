//! A segment in memory that is being filled, by clients or by the cleaner.
//!
//! A block that is written again before the segment is sealed replaces its older version, unless a
//! snapshot keeps that. Blocks that were dropped (discarded, or overwritten while the cleaner was
//! moving them) leave a free slot.

use std::collections::BTreeSet;

use stripewise_drive::{Buffer, BufferPool};

use crate::map::entry::{Block, Entry, Value};
use crate::map::lineage::{Birth, Kept, View};
use crate::map::table::Table;
use crate::shape::{BLOCK_BYTES, Segments};
use crate::summary::{Hole, Kind, Slot, Summary, UNUSED, crc32c};

/// Block that the cleaner moves: the segment that it comes from.
const FROM_CLIENT: u32 = u32::MAX;

/// Holes, and blocks with their bytes.
pub(crate) type Unstaged = (Vec<Hole>, Vec<(Slot, Buffer)>);

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
    holes: Vec<Hole>,
    /// Blocks that no staging record has.
    unstaged: BTreeSet<(u64, Birth)>,
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

    /// Content of a logical block for a viewer; `None` if it is not in this segment.
    pub(crate) fn get(&self, lba: u64, view: &View) -> Option<Content> {
        match self.index.newest(lba, view)?.value {
            Value::Hole => Some(Content::Zeroes),
            Value::Block(block) => Some(Content::Bytes(self.block(block.place as usize))),
        }
    }

    /// The newest version of a logical block that a viewer sees.
    pub(crate) fn newest(&self, lba: u64, view: &View) -> Option<Entry> {
        self.index.newest(lba, view)
    }

    /// Contents by logical block; places are slots.
    pub(crate) fn index(&self) -> &Table {
        &self.index
    }

    /// True if some block in it is late.
    pub(crate) fn has_late(&self) -> bool {
        self.slots.iter().any(|slot| slot.lba != UNUSED && slot.is_late)
    }

    fn block(&self, slot: usize) -> Buffer {
        let start = slot * BLOCK_BYTES as usize;
        let buffer = self.buffer.as_ref().expect("there since the first block");
        buffer.slice(start..start + BLOCK_BYTES as usize)
    }

    /// Adds or replaces a block of a client.
    pub(crate) fn write(&mut self, lba: u64, data: &Buffer, birth: Birth, kept: &Kept, pool: &BufferPool) {
        self.put(data, Slot { lba, crc: 0, birth, is_late: false }, FROM_CLIENT, kept, pool);
        self.unstaged.insert((lba, birth));
    }

    /// Adds a block that the cleaner moves.
    pub(crate) fn move_in(&mut self, data: &Buffer, slot: Slot, origin: u32, kept: &Kept, pool: &BufferPool) {
        self.put(data, slot, origin, kept, pool);
    }

    fn put(&mut self, data: &Buffer, slot: Slot, origin: u32, kept: &Kept, pool: &BufferPool) {
        if self.buffer.is_none() {
            let blocks = self.payload + self.summary_blocks();
            self.buffer = Some(pool.allocate(blocks * BLOCK_BYTES as usize));
        }
        let Slot { lba, birth, is_late, .. } = slot;
        let own = self.index.get(lba, birth).and_then(|entry| entry.block());
        let at = match own {
            Some(block) => block.place as usize,
            None => self.free_slots.pop().map_or(self.slots.len(), |at| at as usize),
        };
        assert!(at < self.payload, "room was checked");
        if at == self.slots.len() {
            self.slots.push(slot);
            self.origins.push(origin);
        } else {
            self.slots[at] = slot;
            self.origins[at] = origin;
        }
        let block = Block { place: at as u64, crc: 0, use_number: 0 };
        let entry = Entry { lba, count: 1, birth, is_late, value: Value::Block(block) };
        self.put_entry(entry, kept);
        self.block(at).copy_from(data);
    }

    /// Adds an entry to the index, and frees the slots of blocks that no viewer sees any more.
    fn put_entry(&mut self, entry: Entry, kept: &Kept) {
        let mut dropped = Vec::new();
        self.index.put(entry, kept, &mut |block| dropped.push(block.place));
        let own = entry.block().map(|block| block.place);
        dropped.into_iter().filter(|&slot| Some(slot) != own).for_each(|slot| self.free(slot as usize));
    }

    fn summary_blocks(&self) -> usize {
        let bytes =
            crate::summary::HEAD_BYTES + (self.payload + self.max_holes) * crate::summary::ENTRY_BYTES;
        bytes.div_ceil(BLOCK_BYTES as usize)
    }

    /// Discards a range.
    pub(crate) fn discard(&mut self, hole: Hole, kept: &Kept) {
        self.put_entry(hole.entry(), kept);
        self.holes.push(hole);
    }

    /// Notes a newer version of a range, sealed elsewhere: older ones are dropped, or late if some
    /// viewer sees them. For a segment without holes.
    pub(crate) fn overtaken(&mut self, lba: u64, count: u64, birth: Birth, kept: &Kept) {
        let older = |entry: &Entry| entry.lba < lba + count && entry.birth <= birth;
        let found: Vec<Entry> =
            self.index.from(lba).take_while(|entry| entry.lba < lba + count).filter(older).collect();
        for entry in found {
            let slot = entry.block().expect("no holes here").place as usize;
            if entry.birth < birth && kept.live(&[birth, entry.birth])[1] {
                self.slots[slot].is_late = true;
            } else {
                self.index.remove(entry.lba, entry.birth);
                self.free(slot);
            }
        }
    }

    fn free(&mut self, slot: usize) {
        let Slot { lba, birth, .. } = self.slots[slot];
        self.slots[slot] = Slot { lba: UNUSED, crc: 0, birth: 0, is_late: false };
        self.unstaged.remove(&(lba, birth));
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
        let unstaged = std::mem::take(&mut self.unstaged);
        let blocks = unstaged.into_iter().map(|(lba, birth)| {
            let block = self.index.get(lba, birth).and_then(|entry| entry.block());
            let block = block.expect("dropped with its slot");
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
            slots: self.slots,
            holes: self.holes,
        };
        buffer.slice(payload_bytes..buffer.len()).with_mut(|bytes| summary.encode(bytes));
        (summary, buffer)
    }
}
