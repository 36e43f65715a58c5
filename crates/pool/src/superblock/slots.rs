//! Reads a drive's slots to find the newest state of its pool. Writes nothing.
//!
//! Slots A and B lie at both ends of a drive. In the slot whose checkpoint is newer, entries are
//! followed one by one, each taken from whichever end has it whole, as far as they go on from one
//! another. Faults expected: torn, lost and rotten entries at one end or both, unreadable sectors,
//! drives that grew or shrank, other versions, leftovers of other pools, plain rubbish. Memory:
//! what the entries hold, at most a slot (64 MiB), and a window for each end.

use std::cmp::Reverse;

use futures_util::future::{join, join_all};
use stripewise_drive::{Buffer, Cause, Context, Drive, DriveError, DriveErrorKind, IoRequest, TimedOut};

use crate::manifest::format::Manifest;
use crate::manifest::ids::{DriveId, Id, PoolId};
use crate::space::addresses::{MIN_DRIVE_BYTES, slot_places};
use crate::superblock::changes::replay;
use crate::superblock::entries::{
    Before, EntryHeader, Header, HeaderContent, NO_SESSION, entry_room_bytes, session,
};
use crate::{BLOCK_BYTES, MIB};
use stripewise_array::MemberOptions;
use stripewise_array::mutation::{self, Mutation};

/// Read at once where entries follow one another.
const WINDOW_BYTES: u64 = 256 << 10;

/// A drive's record of the pool it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub pool_id: PoolId,
    pub drive_id: DriveId,
    pub manifest: Manifest,
    /// Other drives of the pool that its slots speak of. A drive is wiped before it joins, so one
    /// that is written properly has none.
    pub also: Vec<DriveId>,
    /// The session that wrote the newest state; [`NO_SESSION`] where the pool was closed.
    pub session: Id,
    /// All sessions that its headers name.
    pub sessions: Vec<Id>,
}

/// Content found on a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// No superblock of ours.
    None,
    /// An earlier version's, which this program does not read.
    Older(u32),
    /// A newer version's.
    Newer(u32),
    /// With features unknown here.
    Unknown(u64),
    /// Its headers name a pool, of whose state nothing can be read that makes sense.
    Unreadable { pool_id: PoolId, drive_id: DriveId },
    /// `slot`: the one that holds it, 0 or 1, for `Writer::found`.
    /// `intact` when it is the same, and whole, at both ends.
    Valid { superblock: Box<Superblock>, slot: usize, intact: bool },
}

impl Content {
    /// Identity of the pool and drive that the content claims.
    pub(crate) fn identity(&self) -> Option<(PoolId, DriveId)> {
        match self {
            Self::Valid { superblock, .. } => Some((superblock.pool_id, superblock.drive_id)),
            Self::Unreadable { pool_id, drive_id } => Some((*pool_id, *drive_id)),
            Self::None | Self::Older(_) | Self::Newer(_) | Self::Unknown(_) => None,
        }
    }
}

/// True if the drive has room for superblocks and at least some space between them.
pub(crate) fn is_large_enough(capacity_bytes: u64) -> bool {
    capacity_bytes >= MIN_DRIVE_BYTES
}

/// Offsets of the slots in version 1.
pub(crate) fn version_1_places(capacity_bytes: u64) -> [u64; 4] {
    let end = (capacity_bytes / MIB).saturating_sub(1) * MIB;
    [0, MIB / 2, end, end + MIB / 2]
}

async fn read_bytes(drive: &dyn Drive, offset_bytes: u64, length: u64) -> Result<Vec<u8>, DriveError> {
    let buffer = Buffer::from_bytes(&vec![0; length as usize]);
    drive.submit(IoRequest::read(offset_bytes, buffer.clone()).because(Cause::Record)).await?;
    Ok(buffer.to_vec())
}

/// Content found at the possible places of headers.
#[derive(Default)]
struct Headers {
    valid: Vec<(u64, Header)>,
    /// By place.
    sessions: Vec<(u64, Id)>,
    older: Option<u32>,
    newer: Option<u32>,
    unknown: Option<u64>,
    refused: Vec<DriveError>,
    asked: Vec<u64>,
}

impl Headers {
    async fn look(&mut self, drive: &dyn Drive, places: impl IntoIterator<Item = u64>) {
        let room = drive.info().capacity_bytes;
        let mut places: Vec<u64> = places
            .into_iter()
            .filter(|place| place + BLOCK_BYTES <= room && !self.asked.contains(place))
            .collect();
        places.dedup();
        let reads = places.iter().map(|&place| read_bytes(drive, place, BLOCK_BYTES));
        for (&place, read) in places.iter().zip(join_all(reads).await) {
            if let Ok(bytes) = &read
                && let HeaderContent::Valid(_) = Header::decode(bytes, place)
            {
                self.sessions.push((place, session(bytes)));
            }
            match read.as_ref().map(|bytes| Header::decode(bytes, place)) {
                Err(error) => self.refused.push(error.clone()),
                Ok(HeaderContent::None) => {}
                Ok(HeaderContent::Older(version)) => self.older = self.older.max(Some(version)),
                Ok(HeaderContent::Newer(version)) => self.newer = self.newer.max(Some(version)),
                Ok(HeaderContent::Unknown(flags)) => self.unknown = self.unknown.max(Some(flags)),
                Ok(HeaderContent::Valid(header)) => self.valid.push((place, header)),
            }
        }
        self.asked.extend(places);
    }
}

impl Headers {
    /// Looks wherever headers of this version may be. An error when nothing at all could be read.
    async fn look_everywhere(&mut self, drive: &dyn Drive) -> Result<(), DriveError> {
        let capacity_bytes = drive.info().capacity_bytes;
        self.look(drive, [0]).await;
        // A drive that grew still has everything where it was.
        let laid_out_for = self.valid.first().map_or(capacity_bytes, |(_, header)| header.capacity_bytes);
        self.look(drive, (0..2).flat_map(|slot| slot_places(laid_out_for, slot))).await;
        if self.valid.is_empty() {
            self.look(drive, version_1_places(capacity_bytes)).await;
        }
        if self.refused.len() == self.asked.len() {
            return Err(self.refused.swap_remove(0));
        }
        Ok(())
    }
}

/// The pools and drives that the headers on a drive name, each once. Reads only the headers.
pub(crate) async fn read_identities(drive: &dyn Drive) -> Result<Vec<(PoolId, DriveId)>, DriveError> {
    let mut names = Vec::new();
    if !is_large_enough(drive.info().capacity_bytes) {
        return Ok(names);
    }
    let mut headers = Headers::default();
    headers.look_everywhere(drive).await?;
    for (_, header) in &headers.valid {
        let name = (header.pool_id, header.drive_id);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Finds the newest superblock of a drive. Reads only. An error when nothing at all could be read.
pub(crate) async fn read_superblock(drive: &dyn Drive) -> Result<Content, DriveError> {
    let capacity_bytes = drive.info().capacity_bytes;
    if !is_large_enough(capacity_bytes) {
        return Ok(Content::None);
    }
    let mut headers = Headers::default();
    headers.look_everywhere(drive).await?;
    // An older version's leftovers say nothing about a newer version's data.
    if let Some(version) = headers.newer {
        return Ok(Content::Newer(version));
    }
    if let Some(flags) = headers.unknown {
        return Ok(Content::Unknown(flags));
    }
    let mut identities: Vec<Header> = Vec::new();
    for (_, header) in &headers.valid {
        if !identities.contains(header) {
            identities.push(*header);
        }
    }
    let mut slots: Vec<SlotReader<'_>> = Vec::new();
    for &header in &identities {
        for slot in 0..2 {
            slots.extend(SlotReader::open(drive, header, slot).await);
        }
    }
    let is_truncated = mutation::is_chosen(Mutation::GenerationTruncated);
    slots.sort_by_key(|slot| {
        let generation = slot.checkpoint.generation;
        Reverse(if is_truncated { generation & u64::from(u32::MAX) } else { generation })
    });
    for mut slot in slots {
        let Some((manifest, whole)) = slot.read().await else { continue };
        let places = slot_places(slot.header.capacity_bytes, slot.slot);
        let has_header = |place: &u64| headers.valid.contains(&(*place, slot.header));
        let Header { pool_id, drive_id, .. } = slot.header;
        let is_other = |header: &&Header| header.pool_id == pool_id && header.drive_id != drive_id;
        let also = identities.iter().filter(is_other).map(|header| header.drive_id).collect();
        let mut sessions: Vec<Id> = headers.sessions.iter().map(|(_, session)| *session).collect();
        sessions.dedup();
        let newest = headers.sessions.iter().find(|(place, _)| places.contains(place));
        let session = newest.map_or(NO_SESSION, |(_, session)| *session);
        let superblock = Superblock { pool_id, drive_id, manifest, also, session, sessions };
        let intact = whole && places.iter().all(has_header);
        return Ok(Content::Valid { superblock: Box::new(superblock), slot: slot.slot, intact });
    }
    Ok(match (identities.first(), headers.older) {
        (Some(&Header { pool_id, drive_id, .. }), _) => Content::Unreadable { pool_id, drive_id },
        (None, Some(version)) => Content::Older(version),
        (None, None) => Content::None,
    })
}

/// One end's copy of a slot, read piece by piece.
struct End<'a> {
    drive: &'a dyn Drive,
    /// Offset of the first entry on the drive, bytes.
    base: u64,
    room: u64,
    window_at: u64,
    window: Vec<u8>,
}

impl End<'_> {
    /// `length` bytes from `at` on, counted from the first entry; `None` where they cannot be read.
    async fn get(&mut self, at: u64, length: u64) -> Option<&[u8]> {
        let end = at.checked_add(length).filter(|&end| end <= self.room)?;
        if at < self.window_at || end > self.window_at + self.window.len() as u64 {
            let wanted = length.max(WINDOW_BYTES).min(self.room - at);
            let read = match read_bytes(self.drive, self.base + at, wanted).await {
                // The unreadable sector may lie behind the entry.
                Err(_) if wanted > length => read_bytes(self.drive, self.base + at, length).await,
                read => read,
            };
            self.window = read.ok()?;
            self.window_at = at;
        }
        let from = (at - self.window_at) as usize;
        self.window.get(from..from + length as usize)
    }

    /// The entry at `at`, if it is whole.
    async fn entry(&mut self, of: &Header, at: u64) -> Option<(EntryHeader, Vec<u8>)> {
        let (place, room) = (self.base + at, self.room - at);
        let block = self.get(at, BLOCK_BYTES).await?;
        let header = EntryHeader::decode(block, of, place, room)?;
        let entry = self.get(at, header.entry_bytes()).await?;
        header.sections(entry).map(|sections| (header, sections.to_vec()))
    }
}

/// Both copies of a slot that has a checkpoint.
struct SlotReader<'a> {
    header: Header,
    slot: usize,
    ends: [End<'a>; 2],
    checkpoint: EntryHeader,
}

impl<'a> SlotReader<'a> {
    async fn open(drive: &'a dyn Drive, header: Header, slot: usize) -> Option<Self> {
        let room = entry_room_bytes(header.capacity_bytes);
        let mut ends = slot_places(header.capacity_bytes, slot).map(|place| End {
            drive,
            base: place + BLOCK_BYTES,
            room,
            window_at: 0,
            window: Vec::new(),
        });
        let mut checkpoint: Option<EntryHeader> = None;
        for end in &mut ends {
            // Not the window: which slot counts is not known yet.
            let Ok(block) = read_bytes(drive, end.base, BLOCK_BYTES).await else { continue };
            let found = EntryHeader::decode(&block, &header, end.base, room);
            if let Some(found) = found.filter(|found| found.before.is_none())
                && checkpoint.is_none_or(|known| known.generation < found.generation)
            {
                checkpoint = Some(found);
            }
        }
        checkpoint.map(|checkpoint| Self { header, slot, ends, checkpoint })
    }

    /// The state that the slot holds, and whether both ends have all of it.
    async fn read(&mut self) -> Option<(Manifest, bool)> {
        let mut entries: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut proven: Vec<u64> = Vec::new();
        let mut before: Option<Before> = None;
        let mut at = 0;
        let mut whole = true;
        loop {
            let [first, second] = &mut self.ends;
            let found = join(first.entry(&self.header, at), second.entry(&self.header, at)).await;
            let goes_on = |(header, _): &(EntryHeader, Vec<u8>)| match before {
                None => *header == self.checkpoint,
                Some(_) => header.before == before,
            };
            let (first, second) = (found.0.filter(goes_on), found.1.filter(goes_on));
            let alike = first == second;
            let Some((header, sections)) = first.or(second) else { break };
            whole &= alike;
            before = Some(header.as_before());
            at += header.entry_bytes();
            entries.push((header.generation, sections));
            proven.push(header.proven);
            if at >= self.ends[0].room {
                break;
            }
        }
        let mut manifest = replay(&entries)?;
        // Some at the end may have been left out.
        let taken = entries.iter().position(|(generation, _)| *generation == manifest.generation)?;
        manifest.proven = proven[taken];
        let is_last = taken + 1 == entries.len();
        Some((manifest, whole && is_last))
    }
}

/// As [`read_superblock`], but a drive that gives no answer counts as unreadable when a member's
/// patience would end.
pub(crate) async fn read_in_time(
    context: &Context,
    options: &MemberOptions,
    drive: &dyn Drive,
) -> Result<Content, DriveError> {
    in_time(context, options, drive, read_superblock(drive)).await
}

/// As [`read_identities`], no longer than a drive may take to answer.
pub(crate) async fn identities_in_time(
    context: &Context,
    options: &MemberOptions,
    drive: &dyn Drive,
) -> Result<Vec<(PoolId, DriveId)>, DriveError> {
    in_time(context, options, drive, read_identities(drive)).await
}

async fn in_time<T>(
    context: &Context,
    options: &MemberOptions,
    drive: &dyn Drive,
    reading: impl Future<Output = Result<T, DriveError>>,
) -> Result<T, DriveError> {
    match context.time_limit_ns(options.timeout_ns, std::pin::pin!(reading)).await {
        Ok(read) => read,
        Err(TimedOut) => {
            let request = IoRequest::read(0, Buffer::phantom(BLOCK_BYTES as usize));
            Err(request.error(&drive.info().label, DriveErrorKind::Timeout, None))
        }
    }
}

#[cfg(test)]
mod tests;
