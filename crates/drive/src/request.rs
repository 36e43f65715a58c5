//! The `Drive` trait: the one interface to anything that stores blocks.

use std::rc::Rc;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::buffer::Buffer;
use crate::cause::Cause;
use crate::completion::Completion;
use crate::error::{DriveError, DriveErrorKind};
use crate::operation::Operation;

/// Memory of one request, in order. The range on the drive is contiguous; the memory need not be.
pub type Segments = SmallVec<[Buffer; 2]>;

/// One request to a drive.
#[derive(Clone, Debug)]
pub struct IoRequest {
    /// Operation to perform.
    pub operation: Operation,
    /// Offset in bytes from the drive's start; a multiple of the drive's `logical_block_bytes`.
    pub offset_bytes: u64,
    /// Length in bytes; for reads and writes the sum of the segments' lengths. Zero for a flush.
    pub length_bytes: u64,
    /// Memory for reads and writes; empty otherwise.
    pub segments: Segments,
    /// Purpose of the request; drives ignore it.
    pub cause: Cause,
}

impl IoRequest {
    /// Creates a read of `buffer.len()` bytes at `offset_bytes`.
    pub fn read(offset_bytes: u64, buffer: Buffer) -> Self {
        Self::with_segments(Operation::Read, offset_bytes, SmallVec::from_iter([buffer]))
    }

    /// Creates a write of `buffer` at `offset_bytes`.
    pub fn write(offset_bytes: u64, buffer: Buffer, fua: bool) -> Self {
        Self::with_segments(Operation::Write { fua }, offset_bytes, SmallVec::from_iter([buffer]))
    }

    /// Creates a read or write with scattered memory.
    pub fn with_segments(operation: Operation, offset_bytes: u64, segments: Segments) -> Self {
        let length_bytes = segments.iter().map(|segment| segment.len() as u64).sum();
        Self { operation, offset_bytes, length_bytes, segments, cause: Cause::default() }
    }

    /// Creates a flush.
    pub fn flush() -> Self {
        Self::range(Operation::Flush, 0, 0)
    }

    /// Creates a discard or write-zeroes of a range.
    pub fn range(operation: Operation, offset_bytes: u64, length_bytes: u64) -> Self {
        Self { operation, offset_bytes, length_bytes, segments: SmallVec::new(), cause: Cause::default() }
    }

    /// Sets the cause.
    #[must_use]
    pub fn because(mut self, cause: Cause) -> Self {
        self.cause = cause;
        self
    }

    /// End of the range (exclusive), in bytes.
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes + self.length_bytes
    }

    /// Creates an error for a failure of this request.
    pub fn error(&self, drive: &Arc<str>, kind: DriveErrorKind, os_code: Option<i32>) -> DriveError {
        DriveError {
            drive: drive.clone(),
            operation: self.operation,
            offset_bytes: self.offset_bytes,
            length_bytes: self.length_bytes,
            kind,
            os_code,
        }
    }

    /// Checks that the request lies within the drive and on its blocks; every drive does this
    /// first.
    pub fn check(&self, info: &DriveInfo) -> Result<(), DriveError> {
        if self.offset_bytes.checked_add(self.length_bytes).is_none_or(|end| end > info.capacity_bytes) {
            return Err(self.error(&info.label, DriveErrorKind::OutOfRange, None));
        }
        let block = u64::from(info.logical_block_bytes);
        if !self.offset_bytes.is_multiple_of(block) || !self.length_bytes.is_multiple_of(block) {
            return Err(self.error(&info.label, DriveErrorKind::Misaligned, None));
        }
        Ok(())
    }
}

/// The kind of a drive, for display and for defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveKind {
    /// A regular file.
    File,
    /// A block device.
    BlockDevice,
    /// Memory of this process.
    Memory,
    /// A simulated or paced drive.
    Model,
    /// A volume of another pool.
    Volume,
    /// A drive on another machine or in another process, behind a connection.
    Network,
}

/// Identity and geometry of a drive; constant while it is open.
#[derive(Clone, Debug)]
pub struct DriveInfo {
    /// Display name: the path, or a model's name.
    pub label: Arc<str>,
    /// Kind of drive.
    pub kind: DriveKind,
    /// Usable bytes; a multiple of `logical_block_bytes`.
    pub capacity_bytes: u64,
    /// Unit of offsets and lengths: 512 or 4096.
    pub logical_block_bytes: u32,
    /// Useful number of requests in flight: beyond it they only wait inside the drive. The engine
    /// keeps the rest in its own queue, where adjacent requests can still be merged.
    pub queue_depth: u32,
    /// Useful number of bytes in flight, for the same reason.
    pub queue_bytes: u64,
    /// Maximum useful length of a request in bytes; merging stops there.
    pub max_request_bytes: u64,
    /// True if a power cut may lose completed writes that were not flushed.
    pub volatile_cache: bool,
    /// True if writing zeros takes (almost) no transfer, like a hole in a file.
    pub cheap_zeroes: bool,
    /// Maximum gap between two reads that is worth reading over, in bytes: as much as the drive
    /// transfers in the time of one more request. 0 if that is less than a block or unknown.
    pub gap_bytes: u64,
}

/// Minimum [`DriveInfo::gap_bytes`] of a drive with seeks, or with costs like seeks.
const SEEK_BOUND_GAP_BYTES: u64 = 64 << 10;

impl DriveInfo {
    /// True for seek-bound drives: a request that does not begin where the last one ended costs as
    /// much as a long transfer, so the order of requests matters, and the bytes between two may be
    /// transferred with them.
    pub fn is_seek_bound(&self) -> bool {
        self.gap_bytes >= SEEK_BOUND_GAP_BYTES
    }
}

/// A block store. Requests may complete in any order, and overlapping requests in flight have no
/// order: the engine never has two overlapping writes in flight, and a read that overlaps a write
/// may see either.
pub trait Drive {
    /// Identity and geometry.
    fn info(&self) -> &DriveInfo;

    /// Starts a request. Never blocks for long: slow work happens behind the completion. The drive
    /// holds the segments until it answers (or for ever, if it is stuck).
    fn submit(&self, request: IoRequest) -> Completion;

    /// Opens the drive once more, on the thread that calls the result; `None` for a drive that can
    /// be used on its own thread only. All openings are one drive: once it is gone for one of them,
    /// it is gone for all.
    fn for_another_thread(&self) -> Option<OpenAgain> {
        None
    }
}

/// Opens a drive once more, on the thread that calls it.
pub type OpenAgain = Box<dyn FnOnce() -> Rc<dyn Drive> + Send>;
