//! A volume as a drive of another pool: software striping over arrays, as over hardware
//! controllers.
//!
//! Everything that a drive promises its pool the volume's own pool keeps: what a flush or a forced
//! write acknowledged is durable, the rest is in a cache. So the outer pool knows nothing of the
//! inner one but what drives say: an inner volume that lost a block gives a medium error, one that
//! takes no writes denies them, one whose pool was closed is gone.
//!
//! The process that opens the outer pool keeps the inner one open for longer. Memory: as the inner
//! volume admits requests; requests with scattered memory are gathered into one piece more.

use std::rc::Rc;

use stripewise_drive::{
    Buffer, Completion, Context, Drive, DriveError, DriveErrorKind, DriveInfo, DriveKind, IoRequest,
    IoResult, Operation, completion,
};

use crate::error::ArrayError;
use crate::pool::volume::Volume;

/// Blocks of the drive, bytes: those of checksums, so that none is written in part.
const BLOCK_BYTES: u32 = 4096;
/// Requests worth having in flight: the volume has several drives below.
const QUEUE_DEPTH: u32 = 64;
/// Bytes worth having in flight.
const QUEUE_BYTES: u64 = 32 << 20;
/// The longest request that pays is at least this long, bytes, and whole stripes.
const LEAST_REQUEST_BYTES: u64 = 1 << 20;

/// A drive that is a volume. Clones of the volume go on working beside it; only the outer
/// pool should write to it.
pub struct VolumeDrive {
    context: Context,
    volume: Volume,
    info: DriveInfo,
}

impl VolumeDrive {
    /// A drive on an open volume, called `label` (`POOL/VOL`).
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

    /// The volume.
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
        drop(self.context.spawn(async move { sender.complete(carry_out(&volume, &label, request).await) }));
        answer
    }
}

async fn carry_out(volume: &Volume, label: &Rc<str>, request: IoRequest) -> IoResult {
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

/// What is to be written, in one piece.
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

/// What a volume's error is to whoever takes it for a drive.
fn as_drive_error(label: &Rc<str>, request: &IoRequest, error: &ArrayError) -> DriveError {
    let (kind, os_code) = match error {
        ArrayError::Closed => (DriveErrorKind::Gone, None),
        ArrayError::Lost { .. } => (DriveErrorKind::Medium, None),
        ArrayError::Protected => (DriveErrorKind::Denied, None),
        ArrayError::NoSpace(_) | ArrayError::FileSystemFull { .. } => (DriveErrorKind::NoSpace, None),
        ArrayError::OutOfRange { .. } => (DriveErrorKind::OutOfRange, None),
        ArrayError::Misaligned { .. } => (DriveErrorKind::Misaligned, None),
        // Of a drive below that cannot be spared: this one is not gone because of it.
        ArrayError::Drive(below) if below.kind == DriveErrorKind::Medium => {
            (DriveErrorKind::Medium, below.os_code)
        }
        ArrayError::Drive(below) => (DriveErrorKind::Other, below.os_code),
        _ => (DriveErrorKind::Other, None),
    };
    request.error(label, kind, os_code)
}
