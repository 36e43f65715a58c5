//! The identity probe of an export: the hash of one block with known durable contents. After a
//! reconnect the block must still match. Otherwise the server has lost its data (a memory disk,
//! another file under the old name) and must not be used as the same drive.
//!
//! This is a safeguard, not a proof: an older state of the same drive may also match.

use std::hash::{DefaultHasher, Hash, Hasher};

use stripewise_drive::Segments;

/// Maximum length of the probed block.
const BLOCK_BYTES: usize = 4096;

/// Location and hash of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub offset: u64,
    pub length: usize,
    hash: u64,
}

/// The current probe block, and the candidate for the next one.
#[derive(Debug, Default)]
pub(crate) struct IdentityProbe {
    durable: Option<Seen>,
    /// The start of a write: the cookie of the write, the block, and, once the write is answered,
    /// its number among the answered writes.
    coming: Option<(u64, Seen, Option<u64>)>,
}

impl Seen {
    /// Block of at most 4 KiB with contents read from the export.
    pub(super) fn of(offset: u64, bytes: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        Self { offset, length: bytes.len(), hash: hasher.finish() }
    }
}

impl IdentityProbe {
    /// The block that the export must still contain, if one is known.
    pub(super) fn durable(&self) -> Option<Seen> {
        self.durable
    }

    /// Records a block that was read without writes in flight.
    pub(super) fn read(&mut self, seen: Seen) {
        self.durable = Some(seen);
    }

    /// Discards blocks that overlap a range which changes or is about to change.
    pub(super) fn overwritten(&mut self, offset: u64, end: u64) {
        let overlaps = |seen: &Seen| seen.offset < end && offset < seen.offset + seen.length as u64;
        self.durable = self.durable.filter(|seen| !overlaps(seen));
        self.coming = self.coming.filter(|(_, seen, _)| !overlaps(seen));
    }

    /// Makes the first block of a write the candidate, before it is sent. There is at most one
    /// candidate between two flushes.
    pub(super) fn consider(&mut self, cookie: u64, offset: u64, data: &Segments) {
        let Some(first) = data.first().filter(|_| self.coming.is_none()) else { return };
        let block = first.slice(0..first.len().min(BLOCK_BYTES));
        self.coming = block.with(|bytes| (cookie, Seen::of(offset, bytes), None));
    }

    /// Records the answer to a write, the `written`th that is not durable by itself.
    pub(super) fn answered(&mut self, cookie: u64, written: u64, is_durable: bool) {
        let Some((of, seen, _)) = self.coming.filter(|(of, ..)| *of == cookie) else { return };
        if is_durable {
            (self.durable, self.coming) = (Some(seen), None);
        } else {
            self.coming = Some((of, seen, Some(written)));
        }
    }

    /// Drops the candidate of a failed write, whose contents are unknown.
    pub(super) fn refused(&mut self, cookie: u64) {
        self.coming = self.coming.filter(|(of, ..)| *of != cookie);
    }

    /// Records that the first `covers` writes are durable.
    pub(super) fn flushed(&mut self, covers: u64) {
        if let Some((_, seen, Some(written))) = self.coming
            && written <= covers
        {
            (self.durable, self.coming) = (Some(seen), None);
        }
    }
}
