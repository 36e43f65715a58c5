//! Headers of slots, and the entries in them: a checkpoint, and changes behind it.
//!
//! Each says to which pool, drive, place and moment it belongs and carries checksums. These expose
//! torn, corrupt or misplaced data, and leftovers of an earlier use of the drive. Pure; faults
//! expected: any bytes.

use crate::BLOCK_BYTES;
use crate::manifest::ids::{DriveId, Id, PoolId};
use crate::space::addresses::{MAX_DRIVE_BYTES, MIN_DRIVE_BYTES, slot_bytes, slot_places};
use crate::superblock::sections;

/// The format written, and the newest understood.
pub(crate) const FORMAT_VERSION: u32 = 2;
const MAGIC: [u8; 8] = *b"STRPWISE";
/// One sector, so that a header is never torn in the middle by honest drives.
const HEADER_BYTES: usize = 512;
/// Offset of the header's own checksum, in every version.
const CHECKSUM_AT: usize = 508;
/// A feature without which a pool must not be opened: drives that are left out say which commit
/// they had. In every header.
const FEATURE_HAD: u64 = 1;
/// Another: the pool's section names the host that has it.
pub(crate) const FEATURE_HOST: u64 = 2;
/// Another: a conversion was cancelled, and goes back from where it had come.
pub(crate) const FEATURE_TURNED_BACK: u64 = 4;
/// Another: the pool's section has unacknowledged conditions, or a scrub's findings so far.
pub(crate) const FEATURE_CARE: u64 = 8;
/// Another: what a drive holds moves to the one that is to have its place, or columns move so that
/// space can be used.
pub(crate) const FEATURE_MOVES: u64 = 16;
/// Another: the settings bound what jobs add to the clients' latency.
pub(crate) const FEATURE_LATENCY: u64 = 32;
/// Another: parity of a volume stays on its columns for several rows.
pub(crate) const FEATURE_ROTATION: u64 = 64;
/// Another: branches are kept beyond the last ones, of which drives that are away may have no later
/// one.
pub(crate) const FEATURE_OLD_BRANCHES: u64 = 256;
/// Another: blocks are lost, and recorded in sections of their own.
pub(crate) const FEATURE_LOST: u64 = 512;
/// Another: the pool was destroyed, and can be brought back.
pub(crate) const FEATURE_DESTROYED: u64 = 1024;
/// Another: a volume is a log.
pub(crate) const FEATURE_LOG: u64 = 2048;
/// Another: a volume is cut into slices.
pub(crate) const FEATURE_SLICES: u64 = 4096;
/// Another: a log has snapshots, or had some.
pub(crate) const FEATURE_SNAPSHOTS: u64 = 8192;
/// Another: a volume has received a stream, or a part of one.
pub(crate) const FEATURE_RECEIVED: u64 = 16_384;
/// Another: a volume has automatic snapshots.
pub(crate) const FEATURE_SCHEDULE: u64 = 32_768;
/// Another: a log has clones.
pub(crate) const FEATURE_CLONES: u64 = 65_536;
/// A feature that a reader need not know: the header names the session that wrote it.
const FEATURE_SESSION: u64 = 1;
/// Offset of the session in the header.
const SESSION_AT: usize = 80;
/// In a header: the pool was closed, or the program that wrote it knew no sessions.
pub(crate) const NO_SESSION: Id = Id(0);
/// Flags of all such features.
const KNOWN_FEATURES: u64 = FEATURE_HAD
    | FEATURE_HOST
    | FEATURE_TURNED_BACK
    | FEATURE_CARE
    | FEATURE_MOVES
    | FEATURE_LATENCY
    | FEATURE_ROTATION
    | FEATURE_OLD_BRANCHES
    | FEATURE_LOST
    | FEATURE_DESTROYED
    | FEATURE_LOG
    | FEATURE_SLICES
    | FEATURE_SNAPSHOTS
    | FEATURE_RECEIVED
    | FEATURE_SCHEDULE
    | FEATURE_CLONES;

const CHECKPOINT: [u8; 8] = *b"SWCHKPNT";
const CHANGE: [u8; 8] = *b"SWCHANGE";
/// Header before an entry's sections.
pub(crate) const ENTRY_HEADER_BYTES: usize = 64;

pub(crate) fn crc(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of that length")
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

/// Owner of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub pool_id: PoolId,
    pub drive_id: DriveId,
    /// The drive's size when it was taken in.
    pub capacity_bytes: u64,
}

/// Content found at a header's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderContent {
    None,
    Older(u32),
    Newer(u32),
    Unknown(u64),
    Valid(Header),
}

impl Header {
    /// The header's block for the slot at `place`, written by a session, with flags for the
    /// features of what follows.
    pub(crate) fn encode(&self, place: u64, features: u64, session: Id) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        // 12..16 reserved; 16..24 flags of features that must be known; 24..32 of those that need
        // not be.
        bytes[16..24].copy_from_slice(&(FEATURE_HAD | features).to_le_bytes());
        bytes[32..48].copy_from_slice(&self.pool_id.0.to_be_bytes());
        bytes[48..64].copy_from_slice(&self.drive_id.0.to_be_bytes());
        bytes[64..72].copy_from_slice(&self.capacity_bytes.to_le_bytes());
        bytes[72..80].copy_from_slice(&place.to_le_bytes());
        set_session(&mut bytes, session);
        bytes
    }

    /// Reads a header meant for `place`; takes any bytes.
    pub(crate) fn decode(bytes: &[u8], place: u64) -> HeaderContent {
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
        if version < FORMAT_VERSION {
            return HeaderContent::Older(version);
        }
        let unknown = number(bytes, 16) & !KNOWN_FEATURES;
        if unknown != 0 {
            return HeaderContent::Unknown(unknown);
        }
        let capacity_bytes = number(bytes, 64);
        if number(bytes, 72) != place || !(MIN_DRIVE_BYTES..=MAX_DRIVE_BYTES).contains(&capacity_bytes) {
            return HeaderContent::None;
        }
        HeaderContent::Valid(Self {
            pool_id: Id(u128::from_be_bytes(array(bytes, 32))),
            drive_id: Id(u128::from_be_bytes(array(bytes, 48))),
            capacity_bytes,
        })
    }
}

/// The session that a header names, which [`Header::decode`] has found valid.
pub(crate) fn session(bytes: &[u8]) -> Id {
    Id(u128::from_be_bytes(array(bytes, SESSION_AT)))
}

/// Puts another session into a header.
pub(crate) fn set_session(bytes: &mut [u8], session: Id) {
    let optional = number(bytes, 24) | FEATURE_SESSION;
    bytes[24..32].copy_from_slice(&optional.to_le_bytes());
    bytes[SESSION_AT..SESSION_AT + 16].copy_from_slice(&session.0.to_be_bytes());
    let checksum = crc(&bytes[..CHECKSUM_AT]);
    bytes[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

/// No commit has a higher number: one that leaves none for the next is damage.
const MAX_GENERATION: u64 = 1 << 62;

/// Predecessor of a change in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    pub generation: u64,
    pub sections_crc: u32,
}

/// Header before an entry's sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryHeader {
    pub generation: u64,
    /// As [`crate::manifest::format::Manifest::proven`].
    pub proven: u64,
    /// `None`: a checkpoint.
    pub before: Option<Before>,
    pub sections_bytes: usize,
    pub sections_crc: u32,
}

impl EntryHeader {
    pub(crate) fn new(generation: u64, proven: u64, before: Option<Before>, sections: &[u8]) -> Self {
        Self { generation, proven, before, sections_bytes: sections.len(), sections_crc: crc(sections) }
    }

    /// Returns the reference to this entry that the next one holds.
    pub(crate) fn as_before(&self) -> Before {
        Before { generation: self.generation, sections_crc: self.sections_crc }
    }

    /// Bytes of the entry, in whole blocks.
    pub(crate) fn entry_bytes(&self) -> u64 {
        entry_bytes(self.sections_bytes as u64)
    }

    /// The header's bytes for a place on a drive, in bytes from its start.
    pub(crate) fn encode(&self, of: &Header, place: u64) -> [u8; ENTRY_HEADER_BYTES] {
        let mut bytes = [0; ENTRY_HEADER_BYTES];
        bytes[0..8].copy_from_slice(if self.before.is_none() { &CHECKPOINT } else { &CHANGE });
        bytes[8..16].copy_from_slice(&self.generation.to_le_bytes());
        if let Some(before) = self.before {
            bytes[16..24].copy_from_slice(&before.generation.to_le_bytes());
            bytes[24..28].copy_from_slice(&before.sections_crc.to_le_bytes());
        }
        let length = u32::try_from(self.sections_bytes).expect("it was seen to fit a slot");
        bytes[28..32].copy_from_slice(&length.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.sections_crc.to_le_bytes());
        bytes[40..48].copy_from_slice(&place.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.proven.to_le_bytes());
        let checksum = sealed(&bytes, of);
        bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads the header of an entry at `place` that has `room_bytes` at most; takes any bytes.
    pub(crate) fn decode(bytes: &[u8], of: &Header, place: u64, room_bytes: u64) -> Option<Self> {
        let bytes = bytes.get(..ENTRY_HEADER_BYTES)?;
        if u32::from_le_bytes(array(bytes, 60)) != sealed(bytes, of) || number(bytes, 40) != place {
            return None;
        }
        let before = match array(bytes, 0) {
            CHECKPOINT => None,
            CHANGE => Some(Before {
                generation: number(bytes, 16),
                sections_crc: u32::from_le_bytes(array(bytes, 24)),
            }),
            _ => return None,
        };
        let header = Self {
            generation: number(bytes, 8),
            proven: number(bytes, 48),
            before,
            sections_bytes: u32::from_le_bytes(array(bytes, 28)) as usize,
            sections_crc: u32::from_le_bytes(array(bytes, 32)),
        };
        let is_later = before.is_none_or(|before| before.generation < header.generation)
            && header.proven <= header.generation;
        let leaves_numbers = header.generation < MAX_GENERATION;
        (is_later && leaves_numbers && header.entry_bytes() <= room_bytes).then_some(header)
    }

    /// The entry's sections, if they are whole. `entry` begins with the header.
    pub(crate) fn sections<'a>(&self, entry: &'a [u8]) -> Option<&'a [u8]> {
        let end = ENTRY_HEADER_BYTES.checked_add(self.sections_bytes)?;
        let sections = entry.get(ENTRY_HEADER_BYTES..end)?;
        (crc(sections) == self.sections_crc).then_some(sections)
    }
}

/// Over the header and whose it is, so that what another pool or drive left at this place is not
/// believed.
fn sealed(bytes: &[u8], of: &Header) -> u32 {
    let mut all = bytes[..60].to_vec();
    all.extend(of.pool_id.0.to_be_bytes());
    all.extend(of.drive_id.0.to_be_bytes());
    crc(&all)
}

/// For fuzzers: makes checksums of headers and entries right again, in the slots of a whole drive.
pub(crate) fn reseal_slots(image: &mut [u8]) {
    let capacity_bytes = image.len() as u64;
    if !(MIN_DRIVE_BYTES..=MAX_DRIVE_BYTES).contains(&capacity_bytes) {
        return;
    }
    for place in (0..2).flat_map(|slot| slot_places(capacity_bytes, slot)) {
        let start = place as usize;
        let header = &mut image[start..start + HEADER_BYTES];
        let checksum = crc(&header[..CHECKSUM_AT]);
        header[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        let HeaderContent::Valid(of) = Header::decode(header, place) else { continue };
        let entries = start + BLOCK_BYTES as usize..start + slot_bytes(capacity_bytes) as usize;
        reseal_entries(&mut image[entries], &of);
    }
}

/// For fuzzers: gives the checkpoints of a whole drive other numbers, with everything around them
/// right. Changes since a checkpoint are left out.
pub(crate) fn change_numbers(image: &mut [u8], number: &mut dyn FnMut(u64) -> u64) {
    let capacity_bytes = image.len() as u64;
    for place in (0..2).flat_map(|slot| slot_places(capacity_bytes, slot)) {
        let start = place as usize;
        let HeaderContent::Valid(of) = Header::decode(&image[start..], place) else { continue };
        let at = place + BLOCK_BYTES;
        let room_bytes = entry_room_bytes(capacity_bytes);
        let slot = &mut image[at as usize..(at + room_bytes) as usize];
        let Some(header) = EntryHeader::decode(slot, &of, at, room_bytes) else { continue };
        let changed = header.sections(slot).and_then(|sections| sections::change_numbers(sections, number));
        let Some(sections) = changed.filter(|sections| entry_bytes(sections.len() as u64) <= room_bytes)
        else {
            continue;
        };
        let header = EntryHeader::new(header.generation, header.proven, None, &sections);
        slot.fill(0);
        slot[..ENTRY_HEADER_BYTES].copy_from_slice(&header.encode(&of, at));
        slot[ENTRY_HEADER_BYTES..ENTRY_HEADER_BYTES + sections.len()].copy_from_slice(&sections);
    }
}

fn reseal_entries(mut rest: &mut [u8], of: &Header) {
    while rest.len() > ENTRY_HEADER_BYTES {
        let (header, behind) = rest.split_at_mut(ENTRY_HEADER_BYTES);
        let length = u32::from_le_bytes(array(header, 28)) as usize;
        if length == 0 || length > behind.len() {
            break;
        }
        let sections_crc = crc(&behind[..length]);
        header[32..36].copy_from_slice(&sections_crc.to_le_bytes());
        let checksum = sealed(header, of);
        header[60..64].copy_from_slice(&checksum.to_le_bytes());
        let end = (entry_bytes(length as u64) as usize).min(rest.len());
        rest = &mut rest[end..];
    }
}

/// Size of an entry with `sections_bytes` of sections, bytes.
pub(crate) fn entry_bytes(sections_bytes: u64) -> u64 {
    sections_bytes.saturating_add(ENTRY_HEADER_BYTES as u64).div_ceil(BLOCK_BYTES) * BLOCK_BYTES
}

/// Room for entries in a slot of a drive of this size.
pub(crate) fn entry_room_bytes(capacity_bytes: u64) -> u64 {
    slot_bytes(capacity_bytes) - BLOCK_BYTES
}
