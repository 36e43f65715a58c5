//! One block of which it is known what it holds durably, so that a server that is back can be asked
//! whether it still has it: one that lost what it held (a memory disk, another file under the old
//! name) would otherwise be taken for the one before.
//!
//! A guard against such servers, no proof: one that was set back to an older state of the same
//! drive may agree.

use std::hash::{DefaultHasher, Hash, Hasher};

use stripewise_drive::Segments;

/// The most that is looked at, bytes.
const BLOCK_BYTES: usize = 4096;

/// What is known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub offset: u64,
    pub length: usize,
    hash: u64,
}

/// The block that is known, and the one that will be.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    durable: Option<Seen>,
    /// With the number of the write that it is the beginning of, and, once that was answered, how
    /// many had been.
    coming: Option<(u64, Seen, Option<u64>)>,
}

impl Seen {
    /// Of a block of at most 4 KiB that was read.
    pub(super) fn of(offset: u64, bytes: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        Self { offset, length: bytes.len(), hash: hasher.finish() }
    }
}

impl Witness {
    /// What the server must still have, if anything is known.
    pub(super) fn durable(&self) -> Option<Seen> {
        self.durable
    }

    /// This was read when nothing was under way.
    pub(super) fn read(&mut self, seen: Seen) {
        self.durable = Some(seen);
    }

    /// Somebody changes a range, or is about to.
    pub(super) fn overwritten(&mut self, offset: u64, end: u64) {
        let overlaps = |seen: &Seen| seen.offset < end && offset < seen.offset + seen.length as u64;
        self.durable = self.durable.filter(|seen| !overlaps(seen));
        self.coming = self.coming.filter(|(_, seen, _)| !overlaps(seen));
    }

    /// A write is about to be sent: its first block may become the one. At most one is looked at
    /// between two flushes.
    pub(super) fn consider(&mut self, cookie: u64, offset: u64, data: &Segments) {
        let Some(first) = data.first().filter(|_| self.coming.is_none()) else { return };
        let block = first.slice(0..first.len().min(BLOCK_BYTES));
        self.coming = block.with(|bytes| (cookie, Seen::of(offset, bytes), None));
    }

    /// A write was answered, as the `written`th that is not durable by itself.
    pub(super) fn answered(&mut self, cookie: u64, written: u64, is_durable: bool) {
        let Some((of, seen, _)) = self.coming.filter(|(of, ..)| *of == cookie) else { return };
        if is_durable {
            (self.durable, self.coming) = (Some(seen), None);
        } else {
            self.coming = Some((of, seen, Some(written)));
        }
    }

    /// A write was refused: what is there now is not known.
    pub(super) fn refused(&mut self, cookie: u64) {
        self.coming = self.coming.filter(|(of, ..)| *of != cookie);
    }

    /// The first `covers` of them are durable.
    pub(super) fn flushed(&mut self, covers: u64) {
        if let Some((_, seen, Some(written))) = self.coming
            && written <= covers
        {
            (self.durable, self.coming) = (Some(seen), None);
        }
    }
}
