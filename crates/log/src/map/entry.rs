//! Entries of the map.

use crate::map::lineage::Birth;
use crate::mutation::{Mutation, is_chosen};

/// A stored block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Place in the log.
    pub(crate) place: u64,
    pub(crate) crc: u32,
    /// Low half of the sequence of the segment's use: an entry of an earlier use of its segment is
    /// recognised by it.
    pub(crate) use_number: u32,
}

/// Content of a range of logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// One block.
    Block(Block),
    /// A discarded range.
    Hole,
}

/// A version of a range of logical blocks. All versions of a block that a table or a run has are of
/// the same range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) lba: u64,
    /// Logical blocks; 1 unless this is a hole.
    pub(crate) count: u64,
    /// Birth of the version.
    pub(crate) birth: Birth,
    /// True if the cleaner moved it while a newer version existed: parts of the map behind the one
    /// that has this may have that one.
    pub(crate) is_late: bool,
    pub(crate) value: Value,
}

impl Entry {
    /// One past the last logical block.
    pub(crate) fn end(&self) -> u64 {
        self.lba + self.count
    }

    /// The stored block; `None` for a hole.
    pub(crate) fn block(&self) -> Option<Block> {
        match self.value {
            Value::Block(block) => Some(block),
            Value::Hole => None,
        }
    }

    /// The part of the range that lies in `start..end`, which is not empty.
    pub(crate) fn clipped(&self, start: u64, end: u64) -> Self {
        let (lba, end) = (self.lba.max(start), self.end().min(end));
        Self { lba, count: end - lba, ..*self }
    }

    /// True if this is the same stored block.
    pub(crate) fn is_at(&self, place: u64, use_number: u32) -> bool {
        self.block().is_some_and(|block| (block.place, block.use_number) == (place, use_number))
    }
}

/// The newest version that a viewer sees, among the parts of the map asked so far, the newest part
/// first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Newest {
    pub(crate) found: Option<Entry>,
    /// True if no part behind can have a newer one.
    pub(crate) is_final: bool,
}

impl Newest {
    /// Considers the newest version that a part of the map has for the viewer.
    pub(crate) fn offer(&mut self, entry: Option<Entry>) {
        let Some(entry) = entry else { return };
        if self.found.is_none_or(|found| found.birth < entry.birth) {
            self.found = Some(entry);
        }
        self.is_final = !entry.is_late || is_chosen(Mutation::LateVersionsCountAsNewest);
    }
}
