//! A volume as a drive of another pool: software striping over arrays, as over hardware
//! controllers.
//!
//! The inner pool keeps every promise that a drive makes to the outer one: data that a flush or a
//! forced write acknowledged is durable, the rest is cached. The outer pool sees only what drives
//! report: an inner volume that lost a block reports a medium error, one that is read-only denies
//! writes, one whose pool was closed is gone.
//!
//! The process that opens the outer pool keeps the inner one open for longer. Memory: bounded by
//! the admission of the inner volume; requests with scattered memory also need one contiguous copy.

use std::rc::Rc;
use std::sync::Arc;

use stripewise_drive::{
    Buffer, Completion, Context, Drive, DriveError, DriveErrorKind, DriveInfo, DriveKind, IoRequest,
    IoResult, Operation, completion,
};

use crate::volume::Volume;
use stripewise_array::ArrayError;

/// Block size of the drive, bytes: that of checksums, so that no block is written in part.
const BLOCK_BYTES: u32 = 4096;
/// Useful number of requests in flight: the volume has several drives below.
const QUEUE_DEPTH: u32 = 64;
/// Useful number of bytes in flight.
const QUEUE_BYTES: u64 = 32 << 20;
/// Lower bound of the useful request size, bytes, which is a whole number of stripes.
const LEAST_REQUEST_BYTES: u64 = 1 << 20;

/// A drive backed by a volume. Clones of the volume keep working beside it, but only the outer pool
/// should write to it.
pub struct VolumeDrive {
    context: Context,
    volume: Volume,
    info: DriveInfo,
}

impl VolumeDrive {
    /// Creates a drive on an open volume, with a label of the form `POOL/VOL`.
    pub fn new(volume: Volume, label: &str) -> Rc<Self> {
        let stripe_bytes = volume.geometry().stripe_data_bytes();
        let info = DriveInfo {
            label: label.into(),
            kind: DriveKind::Volume,
            capacity_bytes: volume.capacity_bytes() / u64::from(BLOCK_BYTES) * u64::from(BLOCK_BYTES),
            logical_block_bytes: BLOCK_BYTES,
            queue_depth: QUEUE_DEPTH,
            queue_bytes: QUEUE_BYTES,
            max_request_bytes: LEAST_REQUEST_BYTES.next_multiple_of(stripe_bytes).min(QUEUE_BYTES),
            volatile_cache: true,
            cheap_zeroes: false,
            gap_bytes: 0,
        };
        Rc::new(Self { context: volume.pool().context().clone(), volume, info })
    }

    /// The volume behind the drive.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }
}

impl Drive for VolumeDrive {
    fn info(&self) -> &DriveInfo {
        &self.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        if let Err(error) = request.check(&self.info) {
            return Completion::ready(Err(error));
        }
        let (sender, answer) = completion();
        let (volume, label) = (self.volume.clone(), self.info.label.clone());
        drop(self.context.spawn(async move { sender.complete(execute(&volume, &label, request).await) }));
        answer
    }
}

async fn execute(volume: &Volume, label: &Arc<str>, request: IoRequest) -> IoResult {
    let (offset_bytes, length_bytes) = (request.offset_bytes, request.length_bytes);
    let result = match request.operation {
        Operation::Read => read(volume, &request).await,
        Operation::Write { fua } => volume.write(offset_bytes, gathered(volume, &request), fua).await,
        Operation::Flush => volume.flush().await,
        Operation::Discard => volume.discard(offset_bytes, length_bytes).await,
        Operation::WriteZeroes => volume.write_zeroes(offset_bytes, length_bytes).await,
    };
    result.map_err(|error| as_drive_error(label, &request, &error))
}

async fn read(volume: &Volume, request: &IoRequest) -> Result<(), ArrayError> {
    let data = volume.read(request.offset_bytes, request.length_bytes as usize).await?;
    let mut at = 0;
    for segment in &request.segments {
        segment.copy_from(&data.slice(at..at + segment.len()));
        at += segment.len();
    }
    Ok(())
}

/// The data to write, in one buffer.
fn gathered(volume: &Volume, request: &IoRequest) -> Buffer {
    if let [only] = request.segments.as_slice() {
        return only.clone();
    }
    let whole = volume.buffers().allocate(request.length_bytes as usize);
    let mut at = 0;
    for segment in &request.segments {
        whole.slice(at..at + segment.len()).copy_from(segment);
        at += segment.len();
    }
    whole
}

/// Translates a volume's error into the error of a drive.
fn as_drive_error(label: &Arc<str>, request: &IoRequest, error: &ArrayError) -> DriveError {
    let (kind, os_code) = match error {
        ArrayError::Closed => (DriveErrorKind::Gone, None),
        ArrayError::Lost { .. } => (DriveErrorKind::Medium, None),
        ArrayError::Protected => (DriveErrorKind::Denied, None),
        ArrayError::NoSpace(_) | ArrayError::FileSystemFull { .. } => (DriveErrorKind::NoSpace, None),
        ArrayError::OutOfRange { .. } => (DriveErrorKind::OutOfRange, None),
        ArrayError::Misaligned { .. } => (DriveErrorKind::Misaligned, None),
        // An inner drive reported this error; the volume as a drive is not gone because of it.
        ArrayError::Drive(below) if below.kind == DriveErrorKind::Medium => {
            (DriveErrorKind::Medium, below.os_code)
        }
        ArrayError::Drive(below) => (DriveErrorKind::Other, below.os_code),
        _ => (DriveErrorKind::Other, None),
    };
    request.error(label, kind, os_code)
}
