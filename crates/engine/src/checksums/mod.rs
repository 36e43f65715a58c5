//! Checksums of a volume's blocks: what every 4 KiB block of every column should hold, kept apart
//! from the block.
//!
//! For each block there is the CRC-32C of its bytes mixed with its identity (volume, row, column,
//! block in the slab) and the sequence of the write that gave it. A *page* speaks of 1 MiB of one
//! column of one row, and lies on two drives: its "own" place is on the column's drive, its "copy"
//! on the drive of the next column of the same row. So a block that rotted, was written elsewhere
//! or was never written at all does not agree with its page, and the page does not share the
//! block's fate.
//!
//! The files in the order that a block passes them: `verify.rs` (sums, and whether a block is what
//! it should be), `store.rs` (which pages are in memory, and how they get there), `cache.rs` and
//! `entries.rs` (pages in memory), `checkpoint.rs` (changed pages go to the drives), `audit.rs`
//! (rebuild and scrub), `page.rs` (a page's bytes).
//!
//! What this relies on, and the array provides: the sums of a write are durable elsewhere (in the
//! journal) before [`Checksums::set`], and stay there until a checkpoint that began after `set` has
//! ended; a region that was never written is known as such and is not verified; its first write
//! begins with [`Checksums::fresh`], and it is durably known as written only when a checkpoint has
//! written its pages or the journal has all its sums (what the drives hold of its pages until then
//! may be from before it was last discarded).
//!
//! Faults expected: pages unreadable, torn, of another place, old (a lost write) or on a drive that
//! is gone. One of the two places serves as long as it is whole. Where neither is, nothing is known
//! of the blocks and they pass unverified; that is counted.
//!
//! Memory: [`ChecksumOptions::cache_bytes`], and the pages that requests under way have pinned
//! beyond it.

mod audit;
mod cache;
mod checkpoint;
mod entries;
mod page;
mod store;
mod verify;

#[cfg(test)]
mod tests;

use stripewise_drive::{Buffer, Completion, DriveError};

pub use cache::Pin;
pub use checkpoint::CheckpointReport;
pub use entries::Recorded;
pub use page::PAGE_BYTES;
pub(crate) use page::page_is_taken;
pub use store::Checksums;
pub(crate) use store::recorded_sequence;
pub use verify::{Sums, Verdict};

use crate::array::host::LocalFuture;
use crate::error::ArrayError;

/// What a sum is of.
pub const BLOCK_BYTES: u64 = 4096;
/// How much of a column one page speaks of.
pub(crate) const PAGE_COVERS_BYTES: u64 = 1 << 20;
/// Blocks that one page speaks of.
pub(crate) const BLOCKS_PER_PAGE: usize = (PAGE_COVERS_BYTES / BLOCK_BYTES) as usize;

/// Names a page of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId {
    /// The row.
    pub row: u64,
    /// The column, whose blocks the page speaks of.
    pub column: u16,
    /// Which MiB of the slab.
    pub page: u16,
}

/// The two places of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// On the column's own drive.
    Own,
    /// On the drive of the next column of the row.
    Copy,
}

impl Side {
    /// The place that is not this one.
    pub fn other(self) -> Self {
        match self {
            Self::Own => Self::Copy,
            Self::Copy => Self::Own,
        }
    }
}

/// The way to the pages on the drives; the array knows where they are.
pub trait PageIo {
    /// Reads a page. A place that is not current (its drive is missing, or its column is still to
    /// be filled) answers [`DriveErrorKind::Gone`](stripewise_drive::DriveErrorKind::Gone): what it
    /// holds may be valid, yet old.
    fn read(&self, page: PageId, side: Side, into: Buffer) -> Completion;

    /// Writes a page. Only a place without a drive answers "gone": one that is being filled is
    /// written.
    fn write(&self, page: PageId, side: Side, data: Buffer) -> Completion;

    /// Makes durable what was written to all drives.
    fn flush(&self) -> LocalFuture<'_, Result<(), ArrayError>>;

    /// So many unchanged pages between two changed ones are written along, because another position
    /// costs the drives more than writing them again; 0 where that is not so.
    fn most_between(&self) -> u64 {
        0
    }

    /// Whether there is a drive at a place of a page.
    fn is_there(&self, page: PageId, side: Side) -> bool {
        let _ = (page, side);
        true
    }

    /// How often writes that a flush was to make durable were lost so far. Where this changes
    /// between a write and the end of the flush after it, the write is not durable, even if that
    /// flush succeeds: another one has met the error.
    fn losses(&self) -> u64 {
        0
    }

    /// Told of every error but "gone". When it ends, the drive is either worth another request or
    /// excluded, so that its places answer "gone".
    fn report<'a>(
        &'a self,
        page: PageId,
        side: Side,
        error: &'a DriveError,
    ) -> LocalFuture<'a, Result<(), ArrayError>>;

    /// Told of a page that was read but is not what should be there, or older than its other place:
    /// to be counted against its drive, or, soon after a stop that was not clean, put down to that.
    fn found_wrong(&self, page: PageId, side: Side) {
        let _ = (page, side);
    }
}

/// Whose checksums they are.
#[derive(Clone, Copy, Debug)]
pub struct ChecksumSpec {
    /// The volume's identity.
    pub volume_id: u128,
    /// Columns of a row.
    pub width: u16,
    /// Length of a slab: a power of two, at least 1 MiB, at most 128 MiB.
    pub slab_bytes: u64,
}

/// Limits and switches.
#[derive(Clone, Copy, Debug)]
pub struct ChecksumOptions {
    /// Memory for pages.
    pub cache_bytes: usize,
    /// Pages under way at a time when they are written. Neighbours are merged by the drives'
    /// queues.
    pub window_pages: usize,
    /// Read both places of a page and take the newer, instead of the copy only where the own one is
    /// invalid or does not agree with a block. It costs one more read, beside the other, for each
    /// page that is not in memory; without it, a drive that lost the writes of a block *and* of its
    /// page is believed until the next audit. To be set in any case after a stop that was not
    /// clean.
    pub prefer_newest: bool,
    /// Above every stamp of every earlier opening, so that pages written now win over whatever lies
    /// on the drives: for instance the pool's generation at opening, shifted left by 32 bits.
    pub first_stamp: u64,
}

/// What happened since opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChecksumCounters {
    /// Pages read from the drives.
    pub loads: u64,
    /// Pages that gave way to others.
    pub evictions: u64,
    /// Pages of which one place was invalid or old and the other was used.
    pub repaired_pages: u64,
    /// Pages of which no place was valid.
    pub lost_pages: u64,
    /// Checkpoints carried out.
    pub checkpoints: u64,
    /// Pages written, each place counted.
    pub pages_written: u64,
}
