//! The drives of a pool that are at hand: the queue in front of each, and what of it counts.
//!
//! What a drive is to the pool stands in the record, which callers hand in; here is whether it is
//! there and works. Expected faults: drives that fail or vanish at any time, drives that were put
//! back from an older copy, one drive in two places.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::join_all;
use stripewise_drive::Drive;

use crate::error::PoolError;
use crate::manifest::drive_record::{DriveRecord, Errors, Exclusion, ExclusionKind, Role};
use crate::manifest::format::Manifest;
use crate::manifest::volume_record::{PartRecord, VolumeRecord};
use crate::session::Session;
use crate::space::addresses;
use crate::space::slabs::FreeSlabs;
use crate::superblock::released::release;
use crate::superblock::writer::Target;
use crate::volume::site::ArraySites;
use stripewise_array::ArrayMember;
use stripewise_array::Member;
use stripewise_array::MemberLabel;

/// A drive that is at hand and takes part.
#[derive(Clone)]
pub(crate) struct OpenDrive {
    pub member: Rc<Member>,
    /// Errors counted before the pool was opened.
    pub errors_before: Errors,
    /// The drive's own last manifest, if it was away while the pool was used. The drive takes no
    /// part before its standing is online again; columns that this manifest calls current may then
    /// be resynced instead of rebuilt.
    pub behind: Option<Rc<Manifest>>,
}

impl OpenDrive {
    /// Errors counted since the drive joined the pool.
    pub(crate) fn errors(&self) -> Errors {
        let now = self.member.counters();
        Errors {
            read: self.errors_before.read.saturating_add(now.read_errors),
            write: self.errors_before.write.saturating_add(now.write_errors),
            checksum: self.errors_before.checksum.saturating_add(now.checksum_errors),
        }
    }

    /// True if it is this drive, also if it was reopened under the same name.
    pub(crate) fn is_same(&self, drive: &Rc<dyn Drive>) -> bool {
        self.member.is_of(drive) || self.member.label() == &drive.info().label
    }
}

/// Gates before drives, and the threads that use them.
pub(crate) struct Admission {
    pub session: Rc<Session>,
    pub sites: Rc<ArraySites>,
}

impl Admission {
    /// The drive gets its gate, and is opened for the arrays of other threads.
    fn admit(&self, drive: &OpenDrive) {
        drive.member.set_gate(self.session.clone());
        self.sites.open_member(&drive.member, &self.session);
    }
}

/// All drives at hand.
pub(crate) struct OpenDrives {
    /// `None` if the pool is read-only.
    admission: Option<Admission>,
    /// By number: also those excluded since opening (their members are failed) and those that were
    /// away.
    open: RefCell<BTreeMap<u32, OpenDrive>>,
    /// Queues before drives whose changes stay in memory, of volumes that can be read only as their
    /// file system is full.
    shadows: RefCell<Vec<Rc<Member>>>,
    /// Drives that were at hand but are of no use.
    stale: RefCell<BTreeSet<u32>>,
    /// Drives that were shorter than their record when the pool was opened.
    cut: RefCell<BTreeSet<u32>>,
    takes_rolled_back: Cell<bool>,
}

impl Drop for OpenDrives {
    /// A pool that was not closed lets go of its drives as if they had gone.
    fn drop(&mut self) {
        let members = self.open.get_mut().values().map(|drive| &drive.member);
        for member in members.chain(self.shadows.get_mut().iter()) {
            member.fail("the pool was dropped");
            member.stop();
            member.release();
        }
    }
}

impl OpenDrives {
    /// These, by number.
    pub(crate) fn new(open: BTreeMap<u32, OpenDrive>, admission: Option<Admission>) -> Self {
        if let Some(admission) = &admission {
            open.values().for_each(|drive| admission.admit(drive));
        }
        Self {
            admission,
            open: RefCell::new(open),
            shadows: RefCell::default(),
            stale: RefCell::default(),
            cut: RefCell::default(),
            takes_rolled_back: Cell::new(false),
        }
    }

    /// A drive that is at hand, whether or not it takes part.
    pub(crate) fn get(&self, number: u32) -> Option<OpenDrive> {
        self.open.borrow().get(&number).cloned()
    }

    /// True if any of these drives is seek-bound.
    pub(crate) fn are_seek_bound(&self, numbers: &[u32]) -> bool {
        let mut open = numbers.iter().filter_map(|number| self.get(*number));
        open.any(|drive| drive.member.info().is_seek_bound())
    }

    /// The queues of all drives at hand.
    pub(crate) fn members(&self) -> Vec<Rc<Member>> {
        self.open.borrow().values().map(|drive| drive.member.clone()).collect()
    }

    /// True if the drive is present.
    pub(crate) fn is_here(&self, number: u32) -> bool {
        self.open.borrow().contains_key(&number)
    }

    /// A drive comes; gives what was open under its number.
    pub(crate) fn insert(&self, number: u32, drive: OpenDrive) -> Option<OpenDrive> {
        self.admission.iter().for_each(|admission| admission.admit(&drive));
        self.open.borrow_mut().insert(number, drive)
    }

    /// Puts back a drive that was removed.
    pub(crate) fn put_back(&self, number: u32, drive: OpenDrive) {
        self.open.borrow_mut().insert(number, drive);
    }

    /// A drive is not the pool's any more.
    pub(crate) fn remove(&self, number: u32) -> Option<OpenDrive> {
        self.open.borrow_mut().remove(&number)
    }

    /// Forgets where a drive that is out is: it comes back as another, or is not that drive any
    /// more.
    pub(crate) fn let_go(&self, number: u32) {
        if let Some(before) = self.remove(number) {
            before.member.fail("it was let go of");
            before.member.stop();
            before.member.release();
        }
        self.note_of_use(number);
    }

    /// The queue of a drive whose changes stay in memory, to be ended with the others.
    pub(crate) fn add_shadow(&self, member: Rc<Member>) {
        self.shadows.borrow_mut().push(member);
    }

    /// Ends all queues, and lets go of the drives.
    pub(crate) fn release_all(&self) {
        let open = self.open.borrow();
        for member in open.values().map(|drive| &drive.member).chain(self.shadows.borrow().iter()) {
            member.stop();
            member.release();
        }
    }

    /// Empties all working drives, at the same time. Returns the first error.
    pub(crate) async fn give_up_all(&self) -> Result<(), PoolError> {
        let members = self.members();
        let working = members.iter().filter(|member| !member.is_failed());
        let results = join_all(working.map(release)).await;
        results.into_iter().collect::<Result<(), _>>().map_err(PoolError::from)
    }

    /// Sets the share of each drive's time that background work gets beside other load, and the
    /// maximum length of its slices.
    pub(crate) fn set_share(&self, percent: u32, slice_ns: Option<u64>) {
        let share = f64::from(percent) / 100.0;
        for drive in self.open.borrow().values() {
            drive.member.set_background_share(share);
            drive.member.set_background_slice(slice_ns);
        }
    }

    /// Marks the drive of this number as stale.
    pub(crate) fn note_stale(&self, number: u32) {
        self.stale.borrow_mut().insert(number);
    }

    /// Marks the drive of this number as truncated; it stays out.
    pub(crate) fn note_cut(&self, number: u32) {
        self.cut.borrow_mut().insert(number);
    }

    /// Clears the stale mark of this number: the drive is usable again, or gone.
    pub(crate) fn note_of_use(&self, number: u32) {
        self.stale.borrow_mut().remove(&number);
    }

    /// True if the drive was present and is stale.
    pub(crate) fn is_stale(&self, number: u32) -> bool {
        self.stale.borrow().contains(&number)
    }

    /// Drives that were put back from an older copy were taken as they are.
    pub(crate) fn set_takes_rolled_back(&self, takes: bool) {
        self.takes_rolled_back.set(takes);
    }

    /// True if rolled back drives were accepted.
    pub(crate) fn takes_rolled_back(&self) -> bool {
        self.takes_rolled_back.get()
    }

    /// True if a drive that is out is present and could take part.
    pub(crate) fn is_back(&self, number: u32) -> bool {
        self.get(number).is_some_and(|open| open.behind.is_some() && !open.member.is_failed())
    }

    /// A drive that was away takes part: what it said itself counts no more.
    pub(crate) fn note_rejoined(&self, number: u32) {
        if let Some(open) = self.open.borrow_mut().get_mut(&number) {
            open.behind = None;
        }
    }

    /// The number and the queue of the drive with this very label.
    pub(crate) fn labelled(&self, label: &MemberLabel) -> Option<(u32, Rc<Member>)> {
        let open = self.open.borrow();
        let mut all = open.iter().map(|(number, drive)| (*number, &drive.member));
        all.find(|(_, member)| Arc::ptr_eq(member.label(), label))
            .map(|(number, member)| (number, member.clone()))
    }

    /// Wrong blocks that were counted on all drives.
    pub(crate) fn counted_wrong_blocks(&self) -> u64 {
        let open = self.open.borrow();
        open.values().fold(0, |sum, drive| sum.saturating_add(drive.errors().checksum))
    }

    /// Sets the counts of errors back of drives that are meant.
    pub(crate) fn forget_errors(&self, is_meant: impl Fn(u32) -> bool) {
        for (_, drive) in self.open.borrow_mut().iter_mut().filter(|(number, _)| is_meant(**number)) {
            drive.errors_before = Errors::default();
            drive.member.forget_errors();
        }
    }

    /// Enters in a record what was counted of errors.
    pub(crate) fn enter_errors(&self, manifest: &mut Manifest) {
        for (number, open) in self.open.borrow().iter() {
            if let Some(drive) = manifest.drive_mut(*number) {
                drive.errors = open.errors();
            }
        }
    }

    /// The drive that takes part by the record and is this one.
    pub(crate) fn same_online<'a>(
        &self,
        manifest: &'a Manifest,
        drive: &Rc<dyn Drive>,
    ) -> Option<&'a DriveRecord> {
        let open = self.open.borrow();
        let same = open.iter().filter(|(_, open)| open.is_same(drive));
        same.filter_map(|(number, _)| manifest.drive(*number)).find(|record| record.is_online())
    }

    /// The spare that a drive given as a replacement is already.
    pub(crate) fn spare_at(&self, manifest: &Manifest, drive: &Rc<dyn Drive>) -> Option<u32> {
        let open = self.open.borrow();
        let mut spares =
            manifest.drives.iter().filter(|record| record.role == Role::Spare && record.takes_new());
        let is_it = |record: &&DriveRecord| open.get(&record.number).is_some_and(|open| open.is_same(drive));
        spares.find(is_it).map(|record| record.number)
    }

    /// The member of a drive that takes part and works.
    pub(crate) fn working(&self, manifest: &Manifest, number: u32) -> Option<Rc<Member>> {
        if !manifest.is_online(number) {
            return None;
        }
        let open = self.open.borrow();
        open.get(&number).map(|drive| drive.member.clone()).filter(|member| !member.is_failed())
    }

    /// True if the drive takes part and works.
    pub(crate) fn works(&self, manifest: &Manifest, number: u32) -> bool {
        self.working(manifest, number).is_some()
    }

    /// The drives that take part and work.
    pub(crate) fn all_working(&self, manifest: &Manifest) -> BTreeSet<u32> {
        let numbers = manifest.drives.iter().map(|drive| drive.number);
        numbers.filter(|number| self.works(manifest, *number)).collect()
    }

    /// The drives of a role that new rows may go to.
    pub(crate) fn usable(&self, manifest: &Manifest, books: &FreeSlabs, role: Role) -> Vec<u32> {
        books.usable(role).into_iter().filter(|drive| self.works(manifest, *drive)).collect()
    }

    /// Number of drives of these roles that have free slabs: in service, and out of it.
    pub(crate) fn count_with_room(
        &self,
        manifest: &Manifest,
        books: &FreeSlabs,
        roles: &[Role],
    ) -> (usize, usize) {
        let may_have = |drive: &&DriveRecord| {
            roles.contains(&drive.role)
                && !drive.replaced
                && !drive.retiring
                && books.free_slabs(drive.number) > 0
        };
        let is_in_service = |drive: &&&DriveRecord| drive.takes_new() && self.works(manifest, drive.number);
        let all: Vec<&DriveRecord> = manifest.drives.iter().filter(may_have).collect();
        let working = all.iter().filter(is_in_service).count();
        (working, all.len() - working)
    }

    /// True if the drive is present and the columns that maps place on it count.
    pub(crate) fn is_at_hand(&self, manifest: &Manifest, number: u32) -> bool {
        // One that was away counts for volumes that were not written without it.
        let counts = || manifest.is_online(number) || manifest.is_needed(number);
        self.open.borrow().get(&number).is_some_and(|drive| drive.behind.is_none() || counts())
    }

    /// A drive as arrays know it.
    pub(crate) fn array_member(&self, manifest: &Manifest, number: u32) -> Option<ArrayMember> {
        let member = self.working(manifest, number)?;
        let capacity_bytes = manifest.drive(number)?.capacity_bytes;
        let slabs_base_bytes = addresses::slabs_base_bytes(capacity_bytes, manifest.slab_bytes);
        let sums_base_bytes = addresses::checksums_base_bytes(capacity_bytes);
        Some(ArrayMember { number, member, slabs_base_bytes, sums_base_bytes })
    }

    /// All drives that rows may lie on and that work, named so that arrays find them.
    pub(crate) fn named_members(&self, manifest: &Manifest) -> Vec<ArrayMember<MemberLabel>> {
        let drives = manifest.drives.iter().filter(|drive| drive.is_online() && drive.role != Role::Spare);
        drives.filter_map(|drive| Some(self.array_member(manifest, drive.number)?.named())).collect()
    }

    /// Drives that take part according to the record, but cannot any more.
    pub(crate) fn fallen_out(&self, manifest: &Manifest) -> Vec<Exclusion> {
        let open = self.open.borrow();
        let online = manifest.drives.iter().filter(|drive| drive.is_online());
        let exclusion = |drive: &DriveRecord| match open.get(&drive.number) {
            // With its former length it is not what it was.
            None if self.cut.borrow().contains(&drive.number) => Some(Exclusion {
                drive: drive.number,
                reason: "it was cut short".to_owned(),
                kind: ExclusionKind::Failed,
            }),
            None => Some(Exclusion {
                drive: drive.number,
                reason: "it was not there".to_owned(),
                kind: ExclusionKind::Missing,
            }),
            Some(open) => open.member.failed().map(|why| Exclusion {
                drive: drive.number,
                reason: why.to_string(),
                // One that was pulled may come back, and is then as good as before.
                kind: if open.member.was_pulled() { ExclusionKind::Missing } else { ExclusionKind::Failed },
            }),
        };
        online.filter_map(exclusion).collect()
    }

    /// A drive that was two members would be written as both, and what one of them holds be wrong.
    pub(crate) fn assert_distinct(&self, manifest: &Manifest) {
        let open = self.open.borrow();
        let kept = manifest.drives.iter().filter(|drive| !drive.replaced);
        let mut seen: BTreeMap<*const (), u32> = BTreeMap::new();
        for number in kept.map(|drive| drive.number) {
            let Some(drive) = open.get(&number).and_then(|open| open.member.drive()) else { continue };
            let other = seen.insert(Rc::as_ptr(&drive).cast(), number);
            assert_eq!(other, None, "drive {number} has another record: {}", drive.info().label);
        }
    }

    /// The drives that get a commit of this record.
    pub(crate) fn targets(&self, manifest: &Manifest) -> Vec<Target> {
        let open = self.open.borrow();
        let online = manifest.drives.iter().filter(|drive| drive.is_online());
        let target = |drive: &DriveRecord| {
            let member = open.get(&drive.number)?.member.clone();
            Some(Target { number: drive.number, id: drive.id, capacity_bytes: drive.capacity_bytes, member })
        };
        online.filter_map(target).collect()
    }

    /// Refuses changes while no volume can be read because drives are missing that were never at
    /// hand. Such a pool is most likely incomplete by mistake; left as it is, it is whole again
    /// when they come, wherever else they were looked at.
    pub(crate) fn check_readable(&self, manifest: &Manifest) -> Result<(), PoolError> {
        let is_missing = |number: u32| manifest.is_online(number) && !self.is_here(number);
        let missing = manifest.drives.iter().filter(|drive| is_missing(drive.number));
        let missing: Vec<String> = missing.map(|drive| format!("{} ({})", drive.path, drive.id)).collect();
        if missing.is_empty() || manifest.volumes.is_empty() {
            return Ok(());
        }
        let is_away = |number: u32| !self.is_at_hand(manifest, number);
        if manifest.volumes.iter().any(|volume| volume.survives(is_away)) {
            return Ok(());
        }
        Err(PoolError::TooFewDrives { pool: manifest.name.clone(), missing })
    }

    /// True if a volume is about to be used without a drive that takes part, even if the volume has
    /// nothing on that drive: otherwise, when the drive returns, later changes would seem to follow
    /// a commit that never counted.
    pub(crate) fn must_exclude(&self, manifest: &Manifest) -> bool {
        let is_away = |drive: &DriveRecord| drive.is_online() && !self.is_here(drive.number);
        let is_gone = |number: u32| !self.is_at_hand(manifest, number);
        manifest.drives.iter().any(is_away) && manifest.volumes.iter().any(|volume| volume.survives(is_gone))
    }

    /// True if enough of the volume's drives work.
    pub(crate) fn suffice_for(&self, manifest: &Manifest, volume: &VolumeRecord) -> bool {
        volume.survives(|number| !self.works(manifest, number))
    }

    /// Drives whose return would help a volume, by last path and identity.
    pub(crate) fn needed_for(&self, manifest: &Manifest, volume: &VolumeRecord) -> Vec<String> {
        let away = manifest.drives.iter().filter(|drive| {
            !self.works(manifest, drive.number) && volume.parts.iter().any(|part| part.needs(drive.number))
        });
        away.map(|drive| format!("{} ({})", drive.path, drive.id)).collect()
    }

    /// Volumes that can be read now and could not without this drive, or whose journal would be
    /// left without a place.
    pub(crate) fn depending_on(&self, manifest: &Manifest, number: u32) -> Vec<String> {
        let is_away = |other: u32| !self.works(manifest, other);
        let is_gone = |other: u32| other == number || is_away(other);
        let depends = |volume: &&VolumeRecord| {
            let keeps_journal =
                |part: &PartRecord| !part.has_journal_without(is_away) || part.has_journal_without(is_gone);
            volume.survives(is_away) && !(volume.survives(is_gone) && volume.parts.iter().all(keeps_journal))
        };
        manifest.volumes.iter().filter(depends).map(|volume| volume.name.clone()).collect()
    }

    /// Refuses to take a drive out without which something could not be read.
    pub(crate) fn check_spared(&self, manifest: &Manifest, number: u32) -> Result<(), PoolError> {
        let volumes =
            if manifest.is_online(number) { self.depending_on(manifest, number) } else { Vec::new() };
        if volumes.is_empty() {
            return Ok(());
        }
        Err(PoolError::NeedsRedundancy { drive: manifest.path_of(number), volumes })
    }

    /// Refuses where no drive would be left to record the pool on.
    pub(crate) fn check_not_the_last(&self, manifest: &Manifest, number: u32) -> Result<(), PoolError> {
        if manifest.drives.iter().any(|drive| drive.number != number && self.works(manifest, drive.number)) {
            return Ok(());
        }
        let what = "is the last drive of the pool".to_owned();
        Err(PoolError::DriveStanding { drive: manifest.path_of(number), what })
    }
}

#[cfg(test)]
mod tests {
    use stripewise_drive::MemoryDrive;
    use stripewise_layout::Level;
    use stripewise_runtime::VirtualExecutor;

    use super::*;
    use crate::{MIB, testing};
    use stripewise_array::MemberOptions;

    /// Four drives with a volume on each, of which these are at hand.
    fn pool(level: Level, here: &[u32]) -> (Manifest, OpenDrives, Vec<Rc<dyn Drive>>) {
        let mut manifest = testing::pool(&[64; 4], MIB);
        testing::add_volume(&mut manifest, 55, level, 4, 9);
        let context = VirtualExecutor::new().context();
        let drives: Vec<Rc<dyn Drive>> =
            (0..4).map(|n| MemoryDrive::new(&format!("/dev/d{n}"), 64 * MIB) as Rc<dyn Drive>).collect();
        let open = |number: &u32| {
            let member = Member::new(&context, drives[*number as usize].clone(), MemberOptions::default());
            (*number, OpenDrive { member, errors_before: Errors::default(), behind: None })
        };
        (manifest, OpenDrives::new(here.iter().map(open).collect(), None), drives)
    }

    #[test]
    fn failed_drive_leaves_commit_and_arrays() {
        let (manifest, drives, _) = pool(Level::Raid5, &[0, 1, 2]);
        let kinds = |drives: &OpenDrives| -> Vec<(u32, ExclusionKind)> {
            drives.fallen_out(&manifest).iter().map(|out| (out.drive, out.kind)).collect()
        };
        assert_eq!(kinds(&drives), [(3, ExclusionKind::Missing)]);
        drives.get(1).unwrap().member.fail("a test");
        assert_eq!(kinds(&drives), [(1, ExclusionKind::Failed), (3, ExclusionKind::Missing)]);
        assert_eq!(drives.all_working(&manifest), [0, 2].into());
        let members: Vec<u32> = drives.named_members(&manifest).iter().map(|member| member.number).collect();
        assert_eq!(members, [0, 2]);
    }

    #[test]
    fn dispensable_drives_follow_from_working_drives() {
        let (manifest, drives, _) = pool(Level::Raid5, &[0, 1, 2, 3]);
        let volume = &manifest.volumes[0];
        assert!(drives.depending_on(&manifest, 0).is_empty() && drives.check_spared(&manifest, 0).is_ok());
        drives.get(1).unwrap().member.fail("a test");
        assert!(drives.suffice_for(&manifest, volume));
        assert_eq!(drives.depending_on(&manifest, 0), ["v55"]);
        assert!(matches!(drives.check_spared(&manifest, 0), Err(PoolError::NeedsRedundancy { .. })));
        drives.get(0).unwrap().member.fail("a test");
        assert!(!drives.suffice_for(&manifest, volume));
        assert_eq!(drives.needed_for(&manifest, volume).len(), 2);
    }

    #[test]
    fn pool_without_readable_volumes_is_not_changed() {
        let (manifest, drives, _) = pool(Level::Raid5, &[0, 1, 2]);
        assert!(drives.check_readable(&manifest).is_ok() && drives.must_exclude(&manifest));
        let (manifest, drives, _) = pool(Level::Raid5, &[0, 1]);
        let missing = match drives.check_readable(&manifest) {
            Err(PoolError::TooFewDrives { missing, .. }) => missing.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!((missing, drives.must_exclude(&manifest)), (2, false));
    }

    #[test]
    fn the_last_drive_stays() {
        let (manifest, drives, _) = pool(Level::Raid5, &[0, 1]);
        assert!(drives.check_not_the_last(&manifest, 0).is_ok());
        drives.get(1).unwrap().member.fail("a test");
        assert!(drives.check_not_the_last(&manifest, 0).is_err());
    }

    #[test]
    #[should_panic(expected = "has another record")]
    fn one_drive_is_not_two_members() {
        let (manifest, drives, _) = pool(Level::Raid5, &[0, 1]);
        let first = drives.get(0).unwrap();
        drives.insert(2, first);
        drives.assert_distinct(&manifest);
    }

    #[test]
    fn a_spare_is_known_by_the_drive_that_is_offered() {
        let (mut manifest, drives, offered) = pool(Level::Raid5, &[0, 1, 2, 3]);
        assert_eq!(drives.spare_at(&manifest, &offered[3]), None);
        manifest.volumes.clear();
        manifest.drives[3].role = Role::Spare;
        assert_eq!(drives.spare_at(&manifest, &offered[3]), Some(3));
        assert_eq!(drives.same_online(&manifest, &offered[2]).map(|record| record.number), Some(2));
    }
}
