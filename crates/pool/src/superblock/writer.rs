//! Writing commits to drives: a change behind what is there, or a checkpoint into the other slot.
//!
//! One [`Writer`] per open pool. It knows what the last commit was and which drives have it; a
//! commit that finds all its drives so, with room in their logs, is a change of some KiB, any other
//! (the first after opening, a drive that joins, a full log) a checkpoint. A commit is one write of
//! each end of each drive, forced to the medium, in pieces where it is large; the slot that is not
//! written keeps the state before.
//!
//! Faults expected: drives that refuse, at both ends or at one. A write that one end refuses is
//! asked again once. If the drive then has a change at one end only, all drives get a checkpoint in
//! their other slots before the commit counts: with one end alone, one more unreadable sector would
//! make the drive say what was true before, and be believed. A checkpoint at one end only counts,
//! as the drive has no better place; the next commit is a checkpoint in the other slot again.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use futures_util::future::{join, join_all};
use smallvec::SmallVec;
use stripewise_drive::{Buffer, DriveError, DriveKind, IoRequest, Operation, Segments};

use crate::manifest::format::{Manifest, ScrubIntent};
use crate::manifest::ids::{DriveId, Id, PoolId};
use crate::manifest::volume_record::{PartRecord, VolumeRecord};
use crate::space::addresses::{MIN_SLOT_BYTES, end_of_slabs, slot_places};
use crate::superblock::changes::changes;
use crate::superblock::entries::{
    Before, ENTRY_HEADER_BYTES, EntryHeader, FEATURE_CARE, FEATURE_CLONES, FEATURE_DESTROYED, FEATURE_HOST,
    FEATURE_LATENCY, FEATURE_LOG, FEATURE_LOST, FEATURE_MOVES, FEATURE_OLD_BRANCHES, FEATURE_RECEIVED,
    FEATURE_ROTATION, FEATURE_SCHEDULE, FEATURE_SLICES, FEATURE_SNAPSHOTS, FEATURE_TURNED_BACK, Header,
    NO_SESSION, entry_bytes, entry_room_bytes,
};
use crate::superblock::room::RoomLedger;
use crate::superblock::sessions::{Seen, read_session};
use crate::superblock::slots::version_1_places;
use crate::{BLOCK_BYTES, MIB};
use stripewise_array::mutation::{self, Mutation};
use stripewise_array::{Class, Member};

/// A drive that is to get a commit.
#[derive(Clone)]
pub(crate) struct Target {
    pub number: u32,
    pub id: DriveId,
    /// As recorded when it was taken in.
    pub capacity_bytes: u64,
    pub member: Rc<Member>,
}

impl Target {
    fn header(&self, pool_id: PoolId) -> Header {
        Header { pool_id, drive_id: self.id, capacity_bytes: self.capacity_bytes }
    }
}

/// The manifest has outgrown its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge {
    pub needed_bytes: u64,
    pub room_bytes: u64,
}

/// A drive's number, with the outcome there.
type Answer = (u32, Result<Written, DriveError>);

/// Without where the drives have it.
fn as_told(answers: Vec<Answer>) -> Vec<(u32, Result<(), DriveError>)> {
    answers.into_iter().map(|(number, result)| (number, result.map(drop))).collect()
}

/// Log on the drives that are up to date.
struct Log {
    manifest: Manifest,
    /// Offset of the next change from the first entry.
    end: u64,
    before: Before,
}

#[derive(Default)]
struct State {
    log: Option<Log>,
    /// The slot that each drive's newest state is in.
    slots: BTreeMap<u32, usize>,
    /// Drives that have all of the log, at both ends.
    current: Vec<u32>,
    /// The session that writes; none where the pool's record names no host.
    session: Option<Id>,
    /// The slots of each drive whose headers that session wrote.
    own: BTreeMap<u32, [bool; 2]>,
    /// Sessions that each drive's headers named before.
    known: BTreeMap<u32, Vec<Id>>,
}

/// State of a commit on a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    AtBothEnds,
    AtOneEnd,
}

/// Writes a pool's commits, one at a time.
pub(crate) struct Writer {
    pool_id: PoolId,
    piece_bytes: usize,
    /// A slot is filled no further than this.
    most_bytes: u64,
    state: RefCell<State>,
    /// Fill level of the slots.
    pub(crate) ledger: RoomLedger,
}

/// Data to be written: the same on every drive but for headers.
struct Plan {
    entry: EntryHeader,
    /// From the first entry.
    at: u64,
    is_checkpoint: bool,
    /// Features that a reader must support.
    features: u64,
    /// For the headers.
    session: Id,
    /// The part of the sections in the entry's first block.
    first: Vec<u8>,
    /// The other blocks.
    rest: Option<Buffer>,
}

impl Writer {
    /// `piece_bytes`: the largest single write, rounded up to whole blocks. `most_bytes`: a slot is
    /// filled no further.
    pub(crate) fn new(pool_id: PoolId, piece_bytes: usize, most_bytes: u64) -> Self {
        let piece_bytes = piece_bytes.max(1).next_multiple_of(BLOCK_BYTES as usize);
        let (state, ledger) = (RefCell::default(), RoomLedger::default());
        Self { pool_id, piece_bytes, most_bytes, state, ledger }
    }

    /// A drive at hand has its newest state in this slot, which is not written over next.
    pub(crate) fn found(&self, drive: u32, slot: usize) {
        self.state.borrow_mut().slots.insert(drive, slot);
    }

    /// A drive's headers named these sessions when it was opened.
    pub(crate) fn knows(&self, drive: u32, sessions: Vec<Id>) {
        let mut state = self.state.borrow_mut();
        state.known.insert(drive, sessions);
        state.own.remove(&drive);
    }

    /// From now on headers name this session.
    pub(crate) fn begin_session(&self, session: Id) {
        self.state.borrow_mut().session = Some(session);
    }

    /// The session that headers name.
    pub(crate) fn session(&self) -> Option<Id> {
        self.state.borrow().session
    }

    /// The next commit is a checkpoint whose headers name no session: the pool is closed then.
    pub(crate) fn end_session(&self) {
        let mut state = self.state.borrow_mut();
        (state.session, state.log) = (None, None);
    }

    /// Checks if a drive's headers are of this session, or of an earlier one.
    pub(crate) async fn look(&self, target: &Target) -> Seen {
        let (own, known, session) = {
            let state = self.state.borrow();
            let Some(session) = state.session else { return Seen::Nothing };
            let own = state.own.get(&target.number).copied().unwrap_or_default();
            (own, state.known.get(&target.number).cloned().unwrap_or_default(), session)
        };
        let header = target.header(self.pool_id);
        let found = join(read_session(&target.member, &header, 0), read_session(&target.member, &header, 1));
        let (first, second) = found.await;
        let mut seen = Seen::Nothing;
        for (found, own) in [first, second].into_iter().zip(own) {
            let Some(found) = found else { continue };
            let is_other = found != session && (own || !known.contains(&found));
            if is_other && !mutation::is_chosen(Mutation::OtherSessionPassedOver) {
                return Seen::Other;
            }
            seen = Seen::Ours;
        }
        seen
    }

    /// Writes a commit to drives, durably: to `first` before all others, and if that refuses to no
    /// other. Says of each drive that was written to whether it has it. Drives that are not among
    /// the targets, or refuse, get a checkpoint when they are targets again. Commits must not
    /// overlap.
    pub(crate) async fn commit(
        &self,
        manifest: &Manifest,
        first: Option<u32>,
        targets: &[Target],
    ) -> Result<Vec<(u32, Result<(), DriveError>)>, TooLarge> {
        debug_assert_eq!(manifest.check(), Ok(()));
        let plan = self.plan(manifest, targets)?;
        // Until this commit has ended, the drives have something that nothing can be put behind.
        let log = self.state.borrow_mut().log.take();
        let (joining, others): (Vec<&Target>, Vec<&Target>) =
            targets.iter().partition(|target| Some(target.number) == first);
        let mut results = Vec::new();
        for group in [joining, others] {
            let writes = join_all(group.iter().map(|target| self.write(&plan, target))).await;
            let refused = group.len() == 1 && Some(group[0].number) == first && writes[0].is_err();
            results.extend(group.iter().map(|target| target.number).zip(writes));
            if refused {
                let mut state = self.state.borrow_mut();
                state.log = log;
                state.current.retain(|number| Some(*number) != first);
                return Ok(as_told(results));
            }
        }
        self.finish(manifest, &plan, &results);
        if !plan.is_checkpoint && results.iter().any(|(_, result)| matches!(result, Ok(Written::AtOneEnd))) {
            self.checkpoint_after(manifest, targets, &mut results).await;
        }
        Ok(as_told(results))
    }

    /// Writes a checkpoint to the drives that have the commit, as one of them has it at one end
    /// only. Where there is no room for one, that stays so until there is.
    async fn checkpoint_after(&self, manifest: &Manifest, targets: &[Target], results: &mut [Answer]) {
        let has_it = |target: &&Target| {
            results.iter().any(|(number, result)| *number == target.number && result.is_ok())
        };
        let targets: Vec<Target> = targets.iter().filter(has_it).cloned().collect();
        let Ok(plan) = self.plan(manifest, &targets) else { return };
        debug_assert!(plan.is_checkpoint, "a drive lacks an end of the log");
        self.state.borrow_mut().log = None;
        let writes = join_all(targets.iter().map(|target| self.write(&plan, target))).await;
        let written: Vec<Answer> = targets.iter().map(|target| target.number).zip(writes).collect();
        self.finish(manifest, &plan, &written);
        for (number, answer) in written {
            if let Some((_, result)) = results.iter_mut().find(|(other, _)| *other == number) {
                *result = answer;
            }
        }
    }

    fn plan(&self, manifest: &Manifest, targets: &[Target]) -> Result<Plan, TooLarge> {
        let state = self.state.borrow();
        let room = targets.iter().map(|target| entry_room_bytes(target.capacity_bytes)).min().unwrap_or(0);
        let room = room.min(self.most_bytes);
        let features = features(manifest);
        if let Some(log) = &state.log
            // Flags are in the header, which only a checkpoint writes.
            && self::features(&log.manifest) == features
            && targets.iter().all(|target| state.current.contains(&target.number))
        {
            let sections = changes(Some(&log.manifest), manifest);
            let entry = EntryHeader::new(manifest.generation, manifest.proven, Some(log.before), &sections);
            if log.end + entry.entry_bytes() <= room {
                return Ok(Plan::new(entry, log.end, features, &sections));
            }
        }
        let sections = changes(None, manifest);
        let needed_bytes = entry_bytes(sections.len() as u64);
        if needed_bytes > room {
            return Err(TooLarge { needed_bytes, room_bytes: room });
        }
        let entry = EntryHeader::new(manifest.generation, manifest.proven, None, &sections);
        Ok(Plan::new(entry, 0, features, &sections).of_session(state.session.unwrap_or(NO_SESSION)))
    }

    /// The slot that a commit goes to.
    fn slot(&self, plan: &Plan, drive: u32) -> usize {
        let newest = self.state.borrow().slots.get(&drive).copied();
        match newest {
            Some(slot) if plan.is_checkpoint => 1 - slot,
            Some(slot) => slot,
            None => 0,
        }
    }

    async fn write(&self, plan: &Plan, target: &Target) -> Result<Written, DriveError> {
        let header = target.header(self.pool_id);
        let places = slot_places(target.capacity_bytes, self.slot(plan, target.number));
        let ends = places.map(|place| self.write_end(plan, target, header, place));
        let written = match join_all(ends).await.as_slice() {
            [Ok(()), Ok(())] => Ok(Written::AtBothEnds),
            [Err(error), Err(_)] => Err(error.clone()),
            _ => Ok(Written::AtOneEnd),
        };
        if plan.is_checkpoint && matches!(written, Ok(Written::AtBothEnds)) {
            let slot = self.slot(plan, target.number);
            self.state.borrow_mut().own.entry(target.number).or_default()[slot] = true;
        }
        written
    }

    /// To one end of a drive, and once more if it refuses; counted as one error.
    async fn write_end(
        &self,
        plan: &Plan,
        target: &Target,
        header: Header,
        place: u64,
    ) -> Result<(), DriveError> {
        let mut result = plan.write(target, &header, place, self.piece_bytes).await;
        if let Err(error) = &result {
            target.member.note_write_error(error, false);
            result = plan.write(target, &header, place, self.piece_bytes).await;
        }
        result
    }

    fn finish(&self, manifest: &Manifest, plan: &Plan, results: &[Answer]) {
        let written: Vec<(u32, usize)> = results
            .iter()
            .filter(|(_, result)| result.is_ok())
            .map(|(number, _)| (*number, self.slot(plan, *number)))
            .collect();
        match plan.is_checkpoint {
            true => self.ledger.forget(),
            false => {
                let width = manifest.parts().map(|part| part.rows.width()).max().unwrap_or(0) as u64;
                self.ledger.note_change(plan.entry.entry_bytes(), width);
            }
        }
        let mut state = self.state.borrow_mut();
        let whole = results.iter().filter(|(_, result)| matches!(result, Ok(Written::AtBothEnds)));
        state.current = whole.map(|(number, _)| *number).collect();
        state.slots.extend(written);
        let (end, before) = (plan.at + plan.entry.entry_bytes(), plan.entry.as_before());
        state.log = Some(Log { manifest: manifest.clone(), end, before });
    }
}

impl Plan {
    fn new(entry: EntryHeader, at: u64, features: u64, sections: &[u8]) -> Self {
        let in_first = BLOCK_BYTES as usize - ENTRY_HEADER_BYTES;
        let (first, rest) = sections.split_at(sections.len().min(in_first));
        let rest = (!rest.is_empty()).then(|| {
            let mut rest = rest.to_vec();
            rest.resize(rest.len().next_multiple_of(BLOCK_BYTES as usize), 0);
            Buffer::from_bytes(&rest)
        });
        let (is_checkpoint, first) = (entry.before.is_none(), first.to_vec());
        Self { entry, at, is_checkpoint, features, session: NO_SESSION, first, rest }
    }

    fn of_session(self, session: Id) -> Self {
        Self { session, ..self }
    }

    /// Writes to one end of a drive, whose copy of the slot is at `place`.
    async fn write(
        &self,
        target: &Target,
        header: &Header,
        place: u64,
        piece_bytes: usize,
    ) -> Result<(), DriveError> {
        let entry_place = place + BLOCK_BYTES + self.at;
        let mut start = entry_place;
        let mut head = Vec::with_capacity(2 * BLOCK_BYTES as usize);
        if self.is_checkpoint {
            // The slot's header is made again every time, so that it does not stay rotten.
            head.extend(header.encode(place, self.features, self.session));
            start = place;
        }
        head.extend(self.entry.encode(header, entry_place));
        head.extend(&self.first);
        head.resize(head.len().next_multiple_of(BLOCK_BYTES as usize), 0);
        // The head goes with the first piece of the rest, so that a small commit is one write.
        let rest_bytes = self.rest.as_ref().map_or(0, Buffer::len);
        let mut segments: Segments = SmallVec::from_iter([Buffer::from_bytes(&head)]);
        let mut requests = Vec::new();
        let mut taken = 0;
        loop {
            if let Some(rest) = &self.rest {
                let piece = rest.slice(taken..rest_bytes.min(taken + piece_bytes));
                taken += piece.len();
                segments.push(piece);
            }
            let request = IoRequest::with_segments(
                Operation::Write { fua: true },
                start,
                std::mem::take(&mut segments),
            );
            start = request.end_bytes();
            requests.push(request);
            if taken == rest_bytes {
                break;
            }
        }
        let writes = requests.into_iter().map(|request| target.member.submit(Class::Upkeep, request));
        join_all(writes).await.into_iter().collect()
    }
}

/// Prepares a drive for joining a pool: as [`wipe`]. Of a file the space that commits take is
/// written once, so that what a pool records, the deletion of a volume not least, can be recorded
/// when the file system is full. Durable when done.
pub(crate) async fn begin(member: &Rc<Member>) -> Result<(), DriveError> {
    wipe(member).await?;
    let info = member.info();
    if info.kind != DriveKind::File {
        return Ok(());
    }
    let zeroes = Buffer::from_bytes(&vec![0; MIN_SLOT_BYTES as usize]);
    let places = (0..2).flat_map(|slot| slot_places(info.capacity_bytes, slot));
    let writes =
        places.map(|place| member.submit(Class::Upkeep, IoRequest::write(place, zeroes.clone(), false)));
    join_all(writes).await.into_iter().collect::<Result<(), _>>()?;
    member.submit(Class::Upkeep, IoRequest::flush()).await
}

/// Flags of what in a manifest a reader must know.
pub(crate) fn features(manifest: &Manifest) -> u64 {
    let is_turned_back = |volume: &VolumeRecord| {
        volume.conversion.is_some_and(|conversion| conversion.until_offset_bytes.is_some())
    };
    let host = if manifest.host.is_some() { FEATURE_HOST } else { 0 };
    let turned_back = if manifest.volumes.iter().any(is_turned_back) { FEATURE_TURNED_BACK } else { 0 };
    let has_care = !manifest.care.is_empty() || manifest.scrub.as_ref().is_some_and(ScrubIntent::has_counts);
    let care = if has_care { FEATURE_CARE } else { 0 };
    let has_successor = manifest.drives.iter().any(|drive| drive.successor.is_some());
    let moves = if has_successor || manifest.rebalance.is_some() { FEATURE_MOVES } else { 0 };
    let latency = if manifest.settings.rebuild_latency_ms.is_some() { FEATURE_LATENCY } else { 0 };
    let rotates_later = |volume: &VolumeRecord| volume.parts.iter().any(|part| part.shape.rotation_rows > 1);
    let rotation = if manifest.volumes.iter().any(rotates_later) { FEATURE_ROTATION } else { 0 };
    let old_branches = if manifest.old_branches.is_empty() { 0 } else { FEATURE_OLD_BRANCHES };
    let has_lost = manifest.parts().any(|part| !part.lost.is_empty() || !part.dead.is_empty());
    let lost = if has_lost { FEATURE_LOST } else { 0 };
    let destroyed = if manifest.destroyed_unix_s.is_some() { FEATURE_DESTROYED } else { 0 };
    let log = if manifest.volumes.iter().any(VolumeRecord::is_log) { FEATURE_LOG } else { 0 };
    let slices = if manifest.parts().any(|part| part.slice.is_some()) { FEATURE_SLICES } else { 0 };
    let has_snapshots = |part: &PartRecord| part.log.is_some_and(|log| log.snapshots);
    let snapshots = if manifest.parts().any(has_snapshots) { FEATURE_SNAPSHOTS } else { 0 };
    let has_received = |volume: &VolumeRecord| volume.received.is_some() || volume.receiving.is_some();
    let received = if manifest.volumes.iter().any(has_received) { FEATURE_RECEIVED } else { 0 };
    let has_schedule = manifest.volumes.iter().any(|volume| volume.schedule.is_some());
    let schedule = if has_schedule { FEATURE_SCHEDULE } else { 0 };
    let clones = if manifest.clones().next().is_some() { FEATURE_CLONES } else { 0 };
    let of_volumes = turned_back | rotation | lost | log | slices | snapshots | received | schedule | clones;
    host | care | moves | latency | old_branches | destroyed | of_volumes
}

/// Makes a drive hold nothing where superblocks, ours of any version or others', may be: its first
/// MiB, the head of every slot, and its end. Durable when done.
pub(crate) async fn wipe(member: &Rc<Member>) -> Result<(), DriveError> {
    let capacity_bytes = member.info().capacity_bytes;
    let last = version_1_places(capacity_bytes)[2];
    let failures = member.flush_failures().count();
    zero(member, 0, MIB.min(capacity_bytes)).await?;
    for place in (0..2).flat_map(|slot| slot_places(capacity_bytes, slot)) {
        if place >= MIB && place < last {
            zero(member, place, 2 * BLOCK_BYTES).await?;
        }
    }
    debug_assert!(end_of_slabs(capacity_bytes) <= last);
    zero(member, last, capacity_bytes - last).await?;
    member.flush_since(failures).await
}

/// Writes zeros to a range; durable after a flush.
pub(crate) async fn zero(member: &Rc<Member>, start: u64, length: u64) -> Result<(), DriveError> {
    member.submit(Class::Upkeep, IoRequest::range(Operation::WriteZeroes, start, length)).await
}
