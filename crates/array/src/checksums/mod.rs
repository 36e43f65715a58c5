//! Checksums of a volume's blocks: the expected contents of every 4 KiB block of every column, kept
//! apart from the block.
//!
//! Each block has the CRC-32C of its bytes mixed with its identity (volume, row, column, block in
//! the slab), and the sequence of the write that stored it. A *page* covers 1 MiB of one column of
//! one row and lies on two drives: its "own" place is on the column's drive, its "copy" on the
//! drive of the next column of the same row. So a block that rotted, was misdirected or was never
//! written does not agree with its page, and the page does not share the block's fate.
//!
//! The files in the order that a block passes them: `verify.rs` (computes and verifies checksums),
//! `store.rs` (loads, changes and creates pages), `cache.rs` and `entries.rs` (pages in memory),
//! `checkpoint.rs` (writes dirty pages), `audit.rs` (rebuild and scrub), `look.rs` (checks that
//! write nothing), `page.rs` (a page's bytes).
//!
//! The array guarantees: the checksums of a write are durable elsewhere (in the journal) before
//! [`Checksums::set`], and stay there until a checkpoint that began after `set` has ended; a region
//! that was never written is known as such and is not verified; its first write begins with
//! [`Checksums::fresh`], and it is durably marked as written only when a checkpoint has written its
//! pages or the journal has all its checksums (until then its pages on the drives may date from
//! before it was last discarded).
//!
//! Faults expected: pages unreadable, torn, misdirected, outdated (a lost write) or on a missing
//! drive. One intact place of the two is enough. If neither is intact, the blocks pass unverified,
//! and that is counted.
//!
//! Memory: [`ChecksumOptions::cache_bytes`], plus pages beyond it that are pinned by requests in
//! flight.

mod audit;
mod cache;
mod checkpoint;
mod checkpoint_state;
mod entries;
mod look;
mod page;
mod store;
mod verify;

#[cfg(test)]
mod tests;

use stripewise_drive::{Buffer, Completion, DriveError};

pub use cache::Pin;
pub use checkpoint::CheckpointReport;
pub use entries::Recorded;
pub(crate) use look::SeenPages;
pub use page::PAGE_BYTES;
pub(crate) use page::accepts_page;
pub use store::Checksums;
pub(crate) use store::recorded_sequence;
pub use verify::{Sums, Verdict};

use crate::array::host::LocalFuture;
use crate::error::ArrayError;

/// Unit of checksumming.
pub const BLOCK_BYTES: u64 = 4096;
/// Bytes of a column that one page covers.
pub(crate) const PAGE_COVERS_BYTES: u64 = 1 << 20;
/// Blocks that one page covers.
pub(crate) const BLOCKS_PER_PAGE: usize = (PAGE_COVERS_BYTES / BLOCK_BYTES) as usize;

/// Identifies a page of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId {
    /// The row.
    pub row: u64,
    /// The column whose blocks the page covers.
    pub column: u16,
    /// Index of the MiB in the slab.
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
    /// The other place of the page.
    pub fn other(self) -> Self {
        match self {
            Self::Own => Self::Copy,
            Self::Copy => Self::Own,
        }
    }
}

/// Access to the pages on the drives; the array knows their places.
pub trait PageIo {
    /// Reads a page. A place that is not current (its drive is missing, or its column is still to
    /// be filled) answers [`DriveErrorKind::Gone`](stripewise_drive::DriveErrorKind::Gone): its
    /// contents may be valid, yet outdated.
    fn read(&self, page: PageId, side: Side, into: Buffer) -> Completion;

    /// Writes a page. Only a place without a drive answers "gone": a place that is being filled is
    /// written.
    fn write(&self, page: PageId, side: Side, data: Buffer) -> Completion;

    /// Makes all writes to all drives durable.
    fn flush(&self) -> LocalFuture<'_, Result<(), ArrayError>>;

    /// Maximum number of unchanged pages between two dirty ones that are written along, because a
    /// seek costs the drives more than writing them again; 0 where it does not.
    fn most_between(&self) -> u64 {
        0
    }

    /// True if a place of a page has a drive.
    fn is_there(&self, page: PageId, side: Side) -> bool {
        let _ = (page, side);
        true
    }

    /// Number of times so far that a flush lost writes. If this changes between a write and the end
    /// of the flush after it, the write is not durable, even if that flush succeeds: another flush
    /// has met the error.
    fn losses(&self) -> u64 {
        0
    }

    /// Reports an error other than "gone". When this returns, the drive is either worth another
    /// request or excluded, so that its places answer "gone".
    fn report<'a>(
        &'a self,
        page: PageId,
        side: Side,
        error: &'a DriveError,
    ) -> LocalFuture<'a, Result<(), ArrayError>>;

    /// Reports a page that was read and is invalid, or older than its other place. The array counts
    /// it against the drive, or, soon after an unclean stop, attributes it to the stop.
    fn found_wrong(&self, page: PageId, side: Side) {
        let _ = (page, side);
    }
}

/// Identity and geometry of a volume's checksums.
#[derive(Clone, Copy, Debug)]
pub struct ChecksumSpec {
    /// The volume's identity.
    pub volume_id: u128,
    /// Columns of a row.
    pub width: u16,
    /// Length of a slab: a power of two, at least 1 MiB, at most 128 MiB.
    pub slab_bytes: u64,
}

/// Limits and switches of a volume's checksums.
#[derive(Clone, Copy, Debug)]
pub struct ChecksumOptions {
    /// Memory for pages, in bytes.
    pub cache_bytes: usize,
    /// Maximum page writes in flight. The drives' queues merge adjacent ones.
    pub window_pages: usize,
    /// Read both places of a page and take the newer, instead of reading the copy only if the own
    /// place is invalid or does not agree with a block. This costs one more read, in parallel, for
    /// each page that is not in memory; without it, a drive that lost the writes of a block *and*
    /// of its page is believed until the next audit. Must be set after an unclean stop.
    pub prefer_newest: bool,
    /// Higher than every stamp of every earlier opening, so that pages written now supersede all
    /// pages on the drives: for instance the pool's generation at opening, shifted left by 32 bits.
    pub first_stamp: u64,
}

/// Counters since opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChecksumCounters {
    /// Pages read from the drives.
    pub loads: u64,
    /// Pages evicted from memory.
    pub evictions: u64,
    /// Pages with one invalid or outdated place, for which the other was used.
    pub repaired_pages: u64,
    /// Pages with no valid place.
    pub lost_pages: u64,
    /// Completed checkpoints.
    pub checkpoints: u64,
    /// Pages written, each place counted.
    pub pages_written: u64,
}
