//! Superblocks: how a manifest lies on a drive, and how it gets there and back.
//!
//! Four places on each drive: slots A and B in its first MiB, and copies of both in its last whole MiB. Commit number `g`
//! goes to slot A or B by its parity, both copies at once, so whatever is torn or lost leaves the commit before intact in
//! the other slot. A header of one sector says what follows and is checksummed by itself; it names the place it is meant
//! for, so that an image moved by some bytes is not believed. Faults expected: torn, lost and rotten slots, drives that
//! grew or shrank, newer formats, plain rubbish.

use std::rc::Rc;

use futures_util::future::join_all;
use stripewise_drive::{Buffer, Context, Drive, DriveError, DriveErrorKind, IoRequest, Operation, TimedOut};

use super::error::PoolError;
use super::format::{MIB, Manifest};
use super::ids::{DriveId, Id, PoolId};
use crate::member::{Class, Member, MemberOptions};

/// The format written, and the newest understood.
pub(crate) const FORMAT_VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"STRPWISE";
/// One sector, so that a header is never torn in the middle by honest drives.
const HEADER_BYTES: usize = 512;
/// Where in the header its own checksum is, in every version.
const CHECKSUM_AT: usize = 508;
/// Room of one slot.
pub(crate) const SLOT_BYTES: u64 = 512 << 10;
/// What of a slot is left for the manifest.
pub(crate) const MANIFEST_ROOM_BYTES: u64 = SLOT_BYTES - HEADER_BYTES as u64;
/// Slots are written in whole blocks of this size.
const BLOCK_BYTES: usize = 4096;

/// Flags of features without which a pool must not be opened; none yet.
const KNOWN_FEATURES: u64 = 0;

/// What a drive says of the pool it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub pool_id: PoolId,
    pub drive_id: DriveId,
    pub manifest: Manifest,
}

/// What was found on a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// No superblock of ours, or none that can be read.
    None,
    /// A newer version's.
    Newer(u32),
    /// With features unknown here.
    Unknown(u64),
    /// `intact` when its copies at both ends are as they should be.
    Valid { superblock: Box<Superblock>, intact: bool },
}

/// The places of a commit on a drive of this size: at its start and at its end.
pub(crate) fn places(capacity_bytes: u64, generation: u64) -> [u64; 2] {
    let slot = (generation % 2) * SLOT_BYTES;
    [slot, super::format::end_of_space(capacity_bytes) + slot]
}

fn all_places(capacity_bytes: u64) -> [u64; 4] {
    let ([a, b], [c, d]) = (places(capacity_bytes, 0), places(capacity_bytes, 1));
    [a, b, c, d]
}

/// Whether the drive has room for superblocks and anything between.
pub(crate) fn is_large_enough(capacity_bytes: u64) -> bool {
    capacity_bytes >= 4 * MIB
}

fn crc(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// The manifest's bytes.
pub(crate) fn encode_manifest(manifest: &Manifest) -> Result<Vec<u8>, PoolError> {
    let json = serde_json::to_vec(manifest).expect("a manifest has only strings as keys");
    if json.len() as u64 > MANIFEST_ROOM_BYTES {
        return Err(PoolError::MetadataFull {
            needed_bytes: json.len() as u64,
            room_bytes: MANIFEST_ROOM_BYTES,
        });
    }
    Ok(json)
}

/// A slot's bytes for one place of one drive, padded to whole blocks.
pub(crate) fn encode_slot(
    pool_id: PoolId,
    drive_id: DriveId,
    generation: u64,
    json: &[u8],
    place: u64,
) -> Vec<u8> {
    let mut bytes = vec![0; (HEADER_BYTES + json.len()).next_multiple_of(BLOCK_BYTES)];
    bytes[0..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    // 12..16 reserved; 16..24 flags of features that must be known; 24..32 of those that need not be.
    bytes[32..48].copy_from_slice(&pool_id.0.to_be_bytes());
    bytes[48..64].copy_from_slice(&drive_id.0.to_be_bytes());
    bytes[64..72].copy_from_slice(&generation.to_le_bytes());
    bytes[72..80].copy_from_slice(&place.to_le_bytes());
    bytes[80..84].copy_from_slice(&(json.len() as u32).to_le_bytes());
    bytes[84..88].copy_from_slice(&crc(json).to_le_bytes());
    let checksum = crc(&bytes[..CHECKSUM_AT]);
    bytes[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    bytes[HEADER_BYTES..HEADER_BYTES + json.len()].copy_from_slice(json);
    bytes
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pool_id: PoolId,
    drive_id: DriveId,
    generation: u64,
    manifest_bytes: usize,
    manifest_crc: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderContent {
    None,
    Newer(u32),
    Unknown(u64),
    Valid(Header),
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of that length")
}

/// Reads a header meant for `place`; takes any bytes.
pub(crate) fn decode_header(bytes: &[u8], place: u64) -> HeaderContent {
    if bytes.len() < HEADER_BYTES || bytes[..8] != MAGIC {
        return HeaderContent::None;
    }
    if crc(&bytes[..CHECKSUM_AT]) != u32::from_le_bytes(array(bytes, CHECKSUM_AT)) {
        return HeaderContent::None;
    }
    // Every version keeps magic, version and checksum where they are; the rest is its own.
    let version = u32::from_le_bytes(array(bytes, 8));
    if version > FORMAT_VERSION {
        return HeaderContent::Newer(version);
    }
    let unknown = u64::from_le_bytes(array(bytes, 16)) & !KNOWN_FEATURES;
    if unknown != 0 {
        return HeaderContent::Unknown(unknown);
    }
    let manifest_bytes = u32::from_le_bytes(array(bytes, 80));
    let is_right = version == FORMAT_VERSION
        && u64::from_le_bytes(array(bytes, 72)) == place
        && u64::from(manifest_bytes) <= MANIFEST_ROOM_BYTES;
    if !is_right {
        return HeaderContent::None;
    }
    HeaderContent::Valid(Header {
        pool_id: Id(u128::from_be_bytes(array(bytes, 32))),
        drive_id: Id(u128::from_be_bytes(array(bytes, 48))),
        generation: u64::from_le_bytes(array(bytes, 64)),
        manifest_bytes: manifest_bytes as usize,
        manifest_crc: u32::from_le_bytes(array(bytes, 84)),
    })
}

impl Header {
    /// Bytes of the slot in whole blocks.
    fn slot_bytes(&self) -> usize {
        (HEADER_BYTES + self.manifest_bytes).next_multiple_of(BLOCK_BYTES)
    }

    /// Reads what follows the header in a slot; takes any bytes.
    pub fn decode(&self, slot: &[u8]) -> Option<Superblock> {
        let json = slot.get(HEADER_BYTES..HEADER_BYTES + self.manifest_bytes)?;
        if crc(json) != self.manifest_crc {
            return None;
        }
        let manifest: Manifest = serde_json::from_slice(json).ok()?;
        if manifest.generation != self.generation || manifest.check().is_err() {
            return None;
        }
        Some(Superblock { pool_id: self.pool_id, drive_id: self.drive_id, manifest })
    }
}

async fn read_bytes(drive: &dyn Drive, offset_bytes: u64, length: usize) -> Result<Buffer, DriveError> {
    let buffer = Buffer::from_bytes(&vec![0; length]);
    drive.submit(IoRequest::read(offset_bytes, buffer.clone())).await?;
    Ok(buffer)
}

/// Finds the newest superblock of a drive. Reads only. An error when nothing at all could be read.
pub(crate) async fn read_superblock(drive: &dyn Drive) -> Result<Content, DriveError> {
    let capacity_bytes = drive.info().capacity_bytes;
    if !is_large_enough(capacity_bytes) {
        return Ok(Content::None);
    }
    let places = all_places(capacity_bytes);
    let reads = places.map(|place| read_bytes(drive, place, BLOCK_BYTES));
    let mut headers: Vec<(u64, Header)> = Vec::new();
    let (mut newer, mut unknown, mut refused) = (None, None, Vec::new());
    for (place, read) in places.into_iter().zip(join_all(reads).await) {
        let content = match read {
            Ok(buffer) => buffer.with(|bytes| decode_header(bytes, place)).unwrap_or(HeaderContent::None),
            Err(error) => {
                refused.push(error);
                continue;
            }
        };
        match content {
            HeaderContent::None => {}
            HeaderContent::Newer(version) => newer = newer.max(Some(version)),
            HeaderContent::Unknown(flags) => unknown = unknown.max(Some(flags)),
            HeaderContent::Valid(header) => headers.push((place, header)),
        }
    }
    if refused.len() == places.len() {
        return Err(refused.swap_remove(0));
    }
    // What a newer version left must not be judged by what an older one left beside it.
    if let Some(version) = newer {
        return Ok(Content::Newer(version));
    }
    if let Some(flags) = unknown {
        return Ok(Content::Unknown(flags));
    }
    headers.sort_by_key(|(place, header)| (std::cmp::Reverse(header.generation), *place));
    let mut best: Option<(Superblock, usize)> = None;
    for (place, header) in headers {
        if best.as_ref().is_some_and(|(superblock, _)| superblock.manifest.generation != header.generation) {
            break;
        }
        let Ok(slot) = read_bytes(drive, place, header.slot_bytes()).await else { continue };
        let Some(superblock) = slot.with(|bytes| header.decode(bytes)).flatten() else { continue };
        match &mut best {
            None => best = Some((superblock, 1)),
            Some((first, copies)) if *first == superblock => *copies += 1,
            Some(_) => {}
        }
    }
    Ok(match best {
        Some((superblock, copies)) => {
            Content::Valid { superblock: Box::new(superblock), intact: copies == 2 }
        }
        None => Content::None,
    })
}

/// As [`read_superblock`], but a drive that gives no answer counts as unreadable when a member's patience would end.
pub(crate) async fn read_in_time(
    context: &Context,
    options: &MemberOptions,
    drive: &dyn Drive,
) -> Result<Content, DriveError> {
    let read = std::pin::pin!(read_superblock(drive));
    match context.time_limit_ns(options.timeout_ns, read).await {
        Ok(content) => content,
        Err(TimedOut) => {
            let request = IoRequest::read(0, Buffer::phantom(BLOCK_BYTES));
            Err(request.error(&drive.info().label, DriveErrorKind::Timeout, None))
        }
    }
}

/// Writes a commit to a drive, durably. One of its two copies is enough; the error is of the first.
pub(crate) async fn write_superblock(
    member: &Rc<Member>,
    pool_id: PoolId,
    drive_id: DriveId,
    generation: u64,
    json: &[u8],
) -> Result<(), DriveError> {
    let answers = places(member.info().capacity_bytes, generation).map(|place| {
        let bytes = encode_slot(pool_id, drive_id, generation, json, place);
        member.submit(Class::Foreground, IoRequest::write(place, Buffer::from_bytes(&bytes), true))
    });
    let mut results = join_all(answers).await;
    for error in results.iter().filter_map(|result| result.as_ref().err()) {
        member.note_write_error(error, false);
    }
    if results.iter().any(Result::is_ok) {
        return Ok(());
    }
    results.swap_remove(0)
}

/// Makes a drive hold nothing where superblocks, ours or others', may be: its first MiB and everything behind the space
/// for volumes. Durable when done.
pub(crate) async fn wipe(member: &Rc<Member>) -> Result<(), DriveError> {
    let capacity_bytes = member.info().capacity_bytes;
    let end = super::format::end_of_space(capacity_bytes);
    for (start, length) in [(0, MIB), (end, capacity_bytes - end)] {
        zero(member, start, length).await?;
    }
    member.submit(Class::Foreground, IoRequest::flush()).await
}

/// Writes zeros to a range; durable after a flush.
pub(crate) async fn zero(member: &Rc<Member>, start: u64, length: u64) -> Result<(), DriveError> {
    member.submit(Class::Foreground, IoRequest::range(Operation::WriteZeroes, start, length)).await
}

#[cfg(test)]
mod tests;
