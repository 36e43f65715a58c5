//! An array as clients of a volume use it, whatever its kind. The I/O path of a pool's volumes
//! (`pool/src/volume/io.rs`, `zones.rs`) is written against it, so that an array that keeps its
//! data another way can stand beside [`Array`](crate::Array).

use stripewise_drive::{Buffer, BufferPool};

use crate::error::ArrayError;
use crate::map::extents::Extent;

/// A block store of fixed size that survives the loss of drives. Clones are the same array. All
/// offsets and lengths are in bytes.
#[allow(async_fn_in_trait, reason = "an executor has one thread, so no future has to be Send")]
pub trait BlockArray: Clone + 'static {
    /// Usable bytes.
    fn capacity_bytes(&self) -> u64;

    /// Buffers for requests.
    fn buffers(&self) -> &BufferPool;

    /// Fails for a range beyond the end.
    fn check_range(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError>;

    /// Reads; ranges that were never written are zeros.
    async fn read(&self, offset_bytes: u64, length: usize) -> Result<Buffer, ArrayError>;

    /// Writes; durable when this ends if `fua`, else after the next flush.
    async fn write(&self, offset_bytes: u64, data: Buffer, fua: bool) -> Result<(), ArrayError>;

    /// Writes zeros, as far as possible without transferring them.
    async fn write_zeroes(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError>;

    /// The contents of the range are no longer needed; it may read as zeros or as before.
    async fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ArrayError>;

    /// Makes every acknowledged write durable. Fails once for each time that acknowledged
    /// writes were lost.
    async fn flush(&self) -> Result<(), ArrayError>;

    /// Makes durable what can be, and returns the offset in the range up to which everything
    /// acknowledged is.
    async fn durable_until(&self, start_bytes: u64, end_bytes: u64) -> u64;

    /// Written and unwritten stretches of a range, from its beginning on, at most `most`.
    fn extents(&self, offset_bytes: u64, length_bytes: u64, most: usize) -> Result<Vec<Extent>, ArrayError>;

    /// True if nothing was ever written in the range.
    fn is_unwritten(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, ArrayError>;

    /// True if [`Self::write_zeroes`] of the range transfers nothing.
    fn zeroes_at_once(&self, offset_bytes: u64, length_bytes: u64) -> Result<bool, ArrayError>;

    /// True if the array was given up: another one has its contents.
    fn is_abandoned(&self) -> bool;

    /// Number of refused flushes after which it had lost writes.
    fn refused_flushes(&self) -> u64;

    /// Takes over the losses of the array whose contents it has, so that they are reported.
    fn take_over_refusals(&self, other: &Self);

    /// Bytes in use in the journal, and bytes that it has; `None` without one.
    fn journal_fill(&self) -> Option<(u64, u64)>;
}
