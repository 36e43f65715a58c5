//! The `Drive` trait: the one interface to anything that stores blocks.

use std::rc::Rc;

use smallvec::SmallVec;

use crate::buffer::Buffer;
use crate::cause::Cause;
use crate::completion::Completion;
use crate::error::{DriveError, DriveErrorKind};
use crate::operation::Operation;

/// The memory of one request, in order; the drive's range is contiguous, the memory need not be.
pub type Segments = SmallVec<[Buffer; 2]>;

/// One request to a drive.
#[derive(Clone, Debug)]
pub struct IoRequest {
    /// What to do.
    pub operation: Operation,
    /// Where, in bytes from the drive's start; a multiple of the drive's `logical_block_bytes`.
    pub offset_bytes: u64,
    /// How much, in bytes; for reads and writes the sum of the segments' lengths. Zero for a flush.
    pub length_bytes: u64,
    /// Memory for reads and writes; empty otherwise.
    pub segments: Segments,
    /// What for; drives do not look at it.
    pub cause: Cause,
}

impl IoRequest {
    /// A read of `buffer.len()` bytes at `offset_bytes`.
    pub fn read(offset_bytes: u64, buffer: Buffer) -> Self {
        Self::with_segments(Operation::Read, offset_bytes, SmallVec::from_iter([buffer]))
    }

    /// A write of `buffer` at `offset_bytes`.
    pub fn write(offset_bytes: u64, buffer: Buffer, fua: bool) -> Self {
        Self::with_segments(Operation::Write { fua }, offset_bytes, SmallVec::from_iter([buffer]))
    }

    /// A read or write with scattered memory.
    pub fn with_segments(operation: Operation, offset_bytes: u64, segments: Segments) -> Self {
        let length_bytes = segments.iter().map(|segment| segment.len() as u64).sum();
        Self { operation, offset_bytes, length_bytes, segments, cause: Cause::default() }
    }

    /// A flush.
    pub fn flush() -> Self {
        Self::range(Operation::Flush, 0, 0)
    }

    /// A discard or write-zeroes of a range.
    pub fn range(operation: Operation, offset_bytes: u64, length_bytes: u64) -> Self {
        Self { operation, offset_bytes, length_bytes, segments: SmallVec::new(), cause: Cause::default() }
    }

    /// The same, for a cause.
    #[must_use]
    pub fn because(mut self, cause: Cause) -> Self {
        self.cause = cause;
        self
    }

    /// First byte behind the range.
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes + self.length_bytes
    }

    /// A failure of this request.
    pub fn error(&self, drive: &Rc<str>, kind: DriveErrorKind, os_code: Option<i32>) -> DriveError {
        DriveError {
            drive: drive.clone(),
            operation: self.operation,
            offset_bytes: self.offset_bytes,
            length_bytes: self.length_bytes,
            kind,
            os_code,
        }
    }

    /// Whether the request lies within the drive and on its blocks; every drive checks this first.
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

/// What sort of thing a drive is, for people and for defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveKind {
    /// A regular file.
    File,
    /// A block device.
    BlockDevice,
    /// Memory of this process.
    Memory,
    /// A model in virtual time.
    Model,
    /// A volume of another pool.
    Volume,
    /// On another machine, or in another process, behind a connection.
    Network,
}

/// Identity and geometry of a drive; does not change while it is open.
#[derive(Clone, Debug)]
pub struct DriveInfo {
    /// What people call it: the path, or a model's name.
    pub label: Rc<str>,
    /// What sort of thing it is.
    pub kind: DriveKind,
    /// Usable bytes; a multiple of `logical_block_bytes`.
    pub capacity_bytes: u64,
    /// Offsets and lengths must be multiples of this: 512 or 4096.
    pub logical_block_bytes: u32,
    /// How many requests are worth having in flight: beyond it they only wait inside the drive. The
    /// engine keeps the rest in its own queue, where neighbours can still be merged.
    pub queue_depth: u32,
    /// How many bytes are worth having in flight, for the same reason.
    pub queue_bytes: u64,
    /// The longest single request that pays, in bytes; merging stops there.
    pub max_request_bytes: u64,
    /// Whether completed writes may be lost by a power cut until flushed.
    pub volatile_cache: bool,
    /// Whether writes of zeros cost (almost) no transfer, as a hole in a file does.
    pub cheap_zeroes: bool,
    /// A hole between two reads that is worth reading over, in bytes, because another request costs
    /// more than reading that much: what the drive transfers in the time of one request. 0 where
    /// that is less than a block or not known.
    pub gap_bytes: u64,
}

/// From this [`DriveInfo::gap_bytes`] on a drive has an arm, or costs as if it had one.
const DEAR_GAP_BYTES: u64 = 64 << 10;

impl DriveInfo {
    /// Whether a request that does not begin where the last one ended costs as much as many bytes:
    /// then the order of requests matters, and what lies between two may be moved along.
    pub fn has_dear_positions(&self) -> bool {
        self.gap_bytes >= DEAR_GAP_BYTES
    }
}

/// Something that stores blocks. Requests may complete in any order, and overlapping requests in
/// flight have no order: the engine never has two overlapping writes in flight, and a read that
/// overlaps a write may see either.
pub trait Drive {
    /// Identity and geometry.
    fn info(&self) -> &DriveInfo;

    /// Starts a request. Never blocks for long: slow things happen behind the completion. The drive
    /// holds the segments until it answers (or for ever, if it is stuck).
    fn submit(&self, request: IoRequest) -> Completion;
}
