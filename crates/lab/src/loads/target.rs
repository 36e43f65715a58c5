//! The target of a load: anything with a capacity that reads, writes and flushes. Single-threaded.
//!
//! The laboratory measures arrays of the engine, bare drives and devices of other systems through
//! this one trait, so that their figures compare. Errors are the target's own; the driver counts
//! them.

use std::future::Future;
use std::rc::Rc;

use stripewise_array::ArrayError;
use stripewise_drive::{Buffer, BufferPool, Drive, DriveError, IoRequest, Operation};
use stripewise_pool::Volume;

/// A measurable target. Clones are the same target.
pub trait Target: Clone + 'static {
    /// Error of the target.
    type Error: std::error::Error + 'static;

    /// Usable bytes.
    fn capacity_bytes(&self) -> u64;

    /// Memory pool for writes; a pool of phantoms makes a load without contents.
    fn buffers(&self) -> &BufferPool;

    /// Reads `length_bytes` at `offset_bytes`.
    fn read(&self, offset_bytes: u64, length_bytes: u64)
    -> impl Future<Output = Result<Buffer, Self::Error>>;

    /// Writes `data` at `offset_bytes`; durable only after a later flush.
    fn write(&self, offset_bytes: u64, data: Buffer) -> impl Future<Output = Result<(), Self::Error>>;

    /// Writes `data` at `offset_bytes`; complete only when durable (FUA).
    fn write_through(&self, offset_bytes: u64, data: Buffer)
    -> impl Future<Output = Result<(), Self::Error>>;

    /// Discards the contents of the range.
    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> impl Future<Output = Result<(), Self::Error>>;

    /// Makes every completed write durable.
    fn flush(&self) -> impl Future<Output = Result<(), Self::Error>>;
}

/// A bare drive as a target: the baseline for arrays.
#[derive(Clone)]
pub struct DriveTarget {
    drive: Rc<dyn Drive>,
    buffers: BufferPool,
}

impl DriveTarget {
    /// Creates a target of `drive`, with memory from `buffers`.
    pub fn new(drive: Rc<dyn Drive>, buffers: BufferPool) -> Self {
        Self { drive, buffers }
    }
}

impl Target for DriveTarget {
    type Error = DriveError;

    fn capacity_bytes(&self) -> u64 {
        self.drive.info().capacity_bytes
    }

    fn buffers(&self) -> &BufferPool {
        &self.buffers
    }

    async fn read(&self, offset_bytes: u64, length_bytes: u64) -> Result<Buffer, DriveError> {
        let buffer = self.buffers.allocate(length_bytes as usize);
        self.drive.submit(IoRequest::read(offset_bytes, buffer.clone())).await?;
        Ok(buffer)
    }

    async fn write(&self, offset_bytes: u64, data: Buffer) -> Result<(), DriveError> {
        self.drive.submit(IoRequest::write(offset_bytes, data, false)).await
    }

    async fn write_through(&self, offset_bytes: u64, data: Buffer) -> Result<(), DriveError> {
        self.drive.submit(IoRequest::write(offset_bytes, data, true)).await
    }

    async fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), DriveError> {
        self.drive.submit(IoRequest::range(Operation::Discard, offset_bytes, length_bytes)).await
    }

    async fn flush(&self) -> Result<(), DriveError> {
        self.drive.submit(IoRequest::flush()).await
    }
}

impl Target for Volume {
    type Error = ArrayError;

    fn capacity_bytes(&self) -> u64 {
        Volume::capacity_bytes(self)
    }

    fn buffers(&self) -> &BufferPool {
        Volume::buffers(self)
    }

    fn read(&self, offset_bytes: u64, length_bytes: u64) -> impl Future<Output = Result<Buffer, ArrayError>> {
        Volume::read(self, offset_bytes, length_bytes as usize)
    }

    fn write(&self, offset_bytes: u64, data: Buffer) -> impl Future<Output = Result<(), ArrayError>> {
        Volume::write(self, offset_bytes, data, false)
    }

    fn write_through(&self, offset_bytes: u64, data: Buffer) -> impl Future<Output = Result<(), ArrayError>> {
        Volume::write(self, offset_bytes, data, true)
    }

    fn discard(&self, offset_bytes: u64, length_bytes: u64) -> impl Future<Output = Result<(), ArrayError>> {
        Volume::discard(self, offset_bytes, length_bytes)
    }

    fn flush(&self) -> impl Future<Output = Result<(), ArrayError>> {
        Volume::flush(self)
    }
}
