//! Entries of the map.

/// A stored block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Place in the log.
    pub(crate) place: u64,
    pub(crate) crc: u32,
    /// Low half of the sequence of the segment's use: an entry of an earlier use of its segment is
    /// recognised by it.
    pub(crate) use_number: u32,
    /// Epoch in which a client wrote it.
    pub(crate) birth: u32,
}

/// Content of a range of logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// One block.
    Block(Block),
    /// A discarded range of this many blocks.
    Hole(u64),
}

impl Value {
    /// Number of logical blocks.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Self::Block(_) => 1,
            Self::Hole(count) => *count,
        }
    }
}

/// A range of logical blocks and its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) lba: u64,
    pub(crate) value: Value,
}

impl Entry {
    /// True unless this is a hole.
    pub(crate) fn is_block(&self) -> bool {
        matches!(self.value, Value::Block(_))
    }

    /// One past the last logical block.
    pub(crate) fn end(&self) -> u64 {
        self.lba + self.value.count()
    }

    /// The part of the range that lies in `start..end`, which is not empty.
    pub(crate) fn clipped(&self, start: u64, end: u64) -> Self {
        match self.value {
            Value::Block(_) => *self,
            Value::Hole(_) => Self { lba: start, value: Value::Hole(end - start) },
        }
    }
}
