//! Requests of virtio-blk: what a chain asks for, and its execution.
//!
//! Data is copied once between the guest's memory and a buffer of this process, in both directions.
//! A guest may change its memory at any time: bytes that change between the checksum and the drive
//! would be recorded as corruption, and so would those that a read has put there and not compared.
//!
//! Expected faults: chains without room for head and status (an error of the front end); unknown
//! requests, ranges beyond the end, and requests that fail (an answer with that status); a volume
//! that ends, whose requests stay unanswered, so that they are done again when it is back.

use std::io;

use stripewise_array::ArrayError;

use super::config::{MAX_RANGES, MAX_REQUEST_BYTES, SECTOR_BYTES};
use super::device::Device;
use super::memory::GuestMemory;
use super::ring::{Chain, total};
use super::wire::malformed;
use crate::block::{self, Export};

const HEAD_BYTES: usize = 16;
/// Length of the answer to [`Kind::Identity`].
const IDENTITY_BYTES: usize = 20;
const RANGE_BYTES: usize = 16;
/// Flag of a range: zeroing may free its space.
const MAY_UNMAP: u32 = 1;

/// Result of a request, as the guest sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Done = 0,
    Failed = 1,
    Unsupported = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Flush,
    Identity,
    Discard,
    WriteZeroes,
    Unknown,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    kind: Kind,
    sector: u64,
    /// Data besides head and status.
    length_bytes: u64,
}

/// A range to discard or to zero.
struct Range {
    offset: u64,
    length: u64,
    flags: u32,
}

impl Request {
    /// The request of a chain in `memory`.
    pub(super) fn parse(memory: &GuestMemory, chain: &Chain) -> io::Result<Self> {
        let (to_device, to_guest) = (total(chain.readable()), total(chain.writable()));
        if to_device < HEAD_BYTES as u64 || to_guest < 1 {
            return Err(malformed("a request without a head, or without room for its status"));
        }
        let mut head = [0; HEAD_BYTES];
        memory.read(chain.readable(), 0, &mut head);
        let head = u128::from_le_bytes(head);
        let kind = match head as u32 {
            0 => Kind::Read,
            1 => Kind::Write,
            4 => Kind::Flush,
            8 => Kind::Identity,
            11 => Kind::Discard,
            13 => Kind::WriteZeroes,
            _ => Kind::Unknown,
        };
        let length_bytes = match kind {
            Kind::Read | Kind::Identity => to_guest - 1,
            _ => to_device - HEAD_BYTES as u64,
        };
        Ok(Self { kind, sector: (head >> 64) as u64, length_bytes })
    }

    /// Memory that the request takes here.
    pub(super) fn buffer_bytes(&self) -> u64 {
        match self.kind {
            Kind::Read | Kind::Write if self.length_bytes <= MAX_REQUEST_BYTES => self.length_bytes,
            _ => 0,
        }
    }

    /// True if it relies on earlier writes: it is refused after a loss that the client was not
    /// informed of.
    fn relies_on_writes(&self) -> bool {
        matches!(self.kind, Kind::Write | Kind::Flush | Kind::Discard | Kind::WriteZeroes)
    }

    /// Offset of a read or write that is within the volume.
    fn offset(&self, export: &impl Export) -> Result<u64, Status> {
        let is_whole =
            self.length_bytes.is_multiple_of(SECTOR_BYTES) && self.length_bytes <= MAX_REQUEST_BYTES;
        match within(export, self.sector, self.length_bytes) {
            Some(offset) if is_whole => Ok(offset),
            _ => Err(Status::Failed),
        }
    }
}

/// Offset in bytes, if the range is within the volume.
fn within(export: &impl Export, sector: u64, length: u64) -> Option<u64> {
    let offset = sector.checked_mul(SECTOR_BYTES)?;
    (offset.checked_add(length)? <= export.size_bytes()).then_some(offset)
}

/// A request without a result.
pub(super) enum Unanswered {
    /// The volume is no longer served.
    VolumeEnded,
    /// The guest's memory is gone.
    MemoryLost(io::Error),
}

/// The reason that a request ends early.
enum Failure {
    Status(Status),
    Unanswered(Unanswered),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<ArrayError> for Failure {
    fn from(error: ArrayError) -> Self {
        match error {
            ArrayError::Closed => Self::Unanswered(Unanswered::VolumeEnded),
            _ => Self::Status(Status::Failed),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Unanswered(Unanswered::MemoryLost(error))
    }
}

/// Executes a request. `is_durable`: changes are durable when it ends, since the guest never
/// flushes.
pub(super) async fn execute<X: Export>(
    device: &Device<X>,
    memory: &GuestMemory,
    chain: &Chain,
    request: &Request,
    is_durable: bool,
) -> Result<Status, Unanswered> {
    if request.relies_on_writes() && device.losses.takes_news() {
        return Ok(Status::Failed);
    }
    let export = &*device.export;
    let ended = match request.kind {
        Kind::Read => read(export, memory, chain, request).await,
        Kind::Write => write(export, memory, chain, request, is_durable).await,
        _ => Box::pin(rarer(device, memory, chain, request, is_durable)).await,
    };
    match ended {
        Ok(()) => Ok(Status::Done),
        Err(Failure::Status(status)) => Ok(status),
        Err(Failure::Unanswered(why)) => Err(why),
    }
}

async fn read(
    export: &impl Export,
    memory: &GuestMemory,
    chain: &Chain,
    request: &Request,
) -> Result<(), Failure> {
    let offset = request.offset(export)?;
    if request.length_bytes == 0 {
        return Ok(());
    }
    let data = block::read(export, offset, request.length_bytes as usize).await?;
    data.with(|bytes| memory.write(chain.writable(), 0, bytes));
    Ok(())
}

async fn write(
    export: &impl Export,
    memory: &GuestMemory,
    chain: &Chain,
    request: &Request,
    is_durable: bool,
) -> Result<(), Failure> {
    if export.is_read_only() {
        return Err(Status::Failed.into());
    }
    let offset = request.offset(export)?;
    if request.length_bytes == 0 {
        return Ok(());
    }
    let data = export.buffers().allocate(request.length_bytes as usize);
    data.with_mut(|bytes| memory.read(chain.readable(), HEAD_BYTES as u64, bytes));
    // Zeros in place of memory that is gone must not reach the volume.
    memory.check()?;
    data.freeze();
    block::write(export, offset, data, is_durable).await?;
    Ok(())
}

async fn rarer<X: Export>(
    device: &Device<X>,
    memory: &GuestMemory,
    chain: &Chain,
    request: &Request,
    is_durable: bool,
) -> Result<(), Failure> {
    let export = &*device.export;
    match request.kind {
        Kind::Flush => export.flush().await?,
        Kind::Identity => {
            let mut text = device.identity.as_bytes().to_vec();
            text.resize(IDENTITY_BYTES.min(request.length_bytes as usize), 0);
            memory.write(chain.writable(), 0, &text);
        }
        Kind::Discard | Kind::WriteZeroes => {
            for range in ranges(export, memory, chain, request)? {
                let Range { offset, length, flags } = range;
                match request.kind {
                    Kind::Discard => block::discard(export, offset, length, is_durable).await?,
                    _ if flags & MAY_UNMAP != 0 => {
                        block::write_zeroes(export, offset, length, is_durable).await?;
                    }
                    _ => {
                        block::fill_with_zeroes(export, offset, length).await?;
                        block::flush_if(export, is_durable).await?;
                    }
                }
            }
        }
        Kind::Read | Kind::Write | Kind::Unknown => return Err(Status::Unsupported.into()),
    }
    Ok(())
}

/// The ranges of a discard or zeroing, all of them within the volume.
fn ranges(
    export: &impl Export,
    memory: &GuestMemory,
    chain: &Chain,
    request: &Request,
) -> Result<Vec<Range>, Failure> {
    let length = request.length_bytes as usize;
    if export.is_read_only() || !length.is_multiple_of(RANGE_BYTES) || length > MAX_RANGES * RANGE_BYTES {
        return Err(Status::Failed.into());
    }
    let mut bytes = vec![0; length];
    memory.read(chain.readable(), HEAD_BYTES as u64, &mut bytes);
    memory.check()?;
    let known = if request.kind == Kind::Discard { 0 } else { MAY_UNMAP };
    let parsed = bytes.chunks_exact(RANGE_BYTES).map(|bytes| -> Result<Range, Failure> {
        let number = u128::from_le_bytes(bytes.try_into().expect("chunks of that length"));
        let (sectors, flags) = ((number >> 64) as u32, (number >> 96) as u32);
        if flags & !known != 0 {
            return Err(Status::Unsupported.into());
        }
        let length = u64::from(sectors) * SECTOR_BYTES;
        let offset = within(export, number as u64, length).ok_or(Status::Failed)?;
        Ok(Range { offset, length, flags })
    });
    parsed.collect()
}
