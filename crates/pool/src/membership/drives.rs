//! Drives that come into a pool: new ones, and those that take the place of others. Those that were
//! away and are back: `membership/returning.rs`.
//!
//! A drive that works is replaced while it stays a member (`membership/replacement.rs`). In the
//! place of one that is out the new one goes in as a spare first; only then is that place taken. So
//! a replacement that cannot even be written changes nothing, and a cut between the steps leaves a
//! spare that takes over at the next start.
//!
//! A drive is one member. One that belongs to the pool already comes in as a new one only where its
//! old place is given up by the same commit. Faults expected: drives of others, of this pool in the
//! place of another, drives that fail at any of it.

use std::rc::Rc;

use stripewise_drive::Drive;

use crate::create::{least_capacity_bytes, refuse_taken};
use crate::error::PoolError;
use crate::manifest::drive_record::{DriveRecord, Errors, ExclusionKind, Role};
use crate::manifest::events::EventKind;
use crate::manifest::format::{MAX_DRIVE_RECORDS, MAX_DRIVES, Manifest};
use crate::manifest::ids::DriveId;
use crate::manifest::volume_record::VolumeRecord;
use crate::membership::replacement::check_holds;
use crate::open_drives::OpenDrive;
use crate::space::addresses;
use crate::superblock::commit::Change;
use crate::superblock::slots;
use crate::superblock::writer;
use crate::{Inner, Pool};
use stripewise_array::Member;
use stripewise_array::mutation::{self, Mutation};

/// The place that a drive comes into.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// One of its own.
    New,
    /// That of a drive which is out.
    Of(u32),
    /// One of its own, and in the end that of a drive which works.
    After(u32),
}

impl Manifest {
    /// The number of the drive with this identity.
    pub(crate) fn number_of(&self, id: DriveId) -> Result<u32, PoolError> {
        match self.drive_by_id(id) {
            Some(drive) => Ok(drive.number),
            None => Err(PoolError::NoSuchDrive { pool: self.name.clone(), id }),
        }
    }
}

impl Pool {
    /// Takes a drive of any size into the pool. A data drive is used for new rows and, where rows
    /// lack columns, at once for these. With `force` a drive of another pool is taken over, and one
    /// of this pool that is out of service; its place is given up then.
    pub async fn add(&self, drive: Rc<dyn Drive>, role: Role, force: bool) -> Result<DriveId, PoolError> {
        let inner = &self.0;
        let _alone = inner.administer().await?;
        let number = inner.add_drive(drive, role, force, Place::New).await?;
        inner.jobs.forget_conversion_stalls();
        inner.kick_jobs();
        let manifest = inner.manifest.borrow();
        Ok(manifest.drive(number).expect("just added").id)
    }

    /// Adds a drive that waits for another to fail.
    pub async fn add_spare(&self, drive: Rc<dyn Drive>, force: bool) -> Result<DriveId, PoolError> {
        self.add(drive, Role::Spare, force).await
    }

    /// Puts a new drive in the place of another. One that works stays a member until the new one,
    /// which has to be large enough, has all that it held. In the place of one that failed or is
    /// missing, what does not fit goes to free space of the others; refused if there is not enough.
    /// `new` may then be the old drive itself, wiped or not. What is to be done is recorded, and
    /// begins when jobs run. `force`: as with [`Self::add`].
    pub async fn replace(&self, old: DriveId, new: Rc<dyn Drive>, force: bool) -> Result<DriveId, PoolError> {
        let inner = &self.0;
        let _alone = inner.administer().await?;
        let old = inner.manifest.borrow().number_of(old)?;
        if inner.working_member(old).is_some() {
            inner.manifest.borrow().check_replaceable(old)?;
            match self.replace_working(old, new.clone(), force).await {
                // It failed during the copy: it is replaced like any failed drive.
                Err(PoolError::DriveStanding { .. }) if inner.working_member(old).is_none() => {}
                ended => return ended,
            }
        }
        inner.drives.check_spared(&inner.manifest.borrow(), old)?;
        let spare = inner.drives.spare_at(&inner.manifest.borrow(), &new);
        inner.check_takes_place(old, (&new.info().label, new.info().capacity_bytes))?;
        let number = match spare.filter(|spare| *spare != old) {
            Some(spare) => spare,
            None => inner.add_drive(new, Role::Spare, force, Place::Of(old)).await?,
        };
        let id = inner.manifest.borrow().drive(number).expect("just found or added").id;
        inner.put_in_place(old, number).await?;
        Ok(id)
    }

    /// Checks that a drive of this capacity in bytes, named by `label` in the error, is large
    /// enough to replace another.
    pub fn check_replacement(&self, old: DriveId, label: &str, capacity_bytes: u64) -> Result<(), PoolError> {
        let inner = &self.0;
        let old = inner.manifest.borrow().number_of(old)?;
        if inner.working_member(old).is_none() {
            return inner.check_takes_place(old, (label, capacity_bytes));
        }
        inner.manifest.borrow().check_replaceable(old)?;
        let slab_bytes = inner.manifest.borrow().slab_bytes;
        check_holds(label, capacity_bytes, inner.space.borrow().used_slabs(old), slab_bytes)
    }

    /// As [`Self::replace`], with a spare that the pool has.
    pub async fn replace_by_spare(&self, old: DriveId, spare: DriveId) -> Result<(), PoolError> {
        let inner = &self.0;
        let _alone = inner.administer().await?;
        let (old, number) =
            (inner.manifest.borrow().number_of(old)?, inner.manifest.borrow().number_of(spare)?);
        let record = inner.manifest.borrow().drive(number).cloned().expect("just found");
        if record.role != Role::Spare || inner.working_member(number).is_none() || number == old {
            return Err(PoolError::DriveInPool { drive: record.path, id: spare });
        }
        if inner.working_member(old).is_some() {
            inner.manifest.borrow().check_replaceable(old)?;
            inner.begin_replacement(old, number).await?;
            return inner.after_replacement_began(old).await;
        }
        inner.drives.check_spared(&inner.manifest.borrow(), old)?;
        inner.check_takes_place(old, (&record.path, record.capacity_bytes))?;
        inner.put_in_place(old, number).await
    }

    /// Excludes a drive that was found to be gone before any request to it failed, so that a spare
    /// is allocated although the pool is not in use. If the drive comes back, data changed during
    /// its absence is resynced. No effect on a drive that is out already.
    pub async fn drive_vanished(&self, id: DriveId, reason: &str) -> Result<(), PoolError> {
        let Some(member) = self.member(id) else { return Ok(()) };
        member.fail_as_pulled(reason);
        self.leave_out(&member, reason).await
    }

    /// As [`Self::drive_vanished`], of a drive that is shorter than it was: should it get its
    /// length back, nothing that it holds counts.
    pub async fn drive_cut(&self, id: DriveId, reason: &str) -> Result<(), PoolError> {
        let Some(member) = self.member(id) else { return Ok(()) };
        member.fail(reason);
        self.leave_out(&member, reason).await
    }

    async fn leave_out(&self, member: &Rc<Member>, reason: &str) -> Result<(), PoolError> {
        self.0.exclude_member(member.label(), reason).await?;
        self.0.kick_jobs();
        Ok(())
    }
}

impl Inner {
    /// Refuses a drive that not all threads with arrays of the pool can open.
    pub(crate) fn check_threads(&self, drive: &Rc<dyn Drive>) -> Result<(), PoolError> {
        if self.options.member.threads == 1 || drive.for_another_thread().is_some() {
            return Ok(());
        }
        Err(PoolError::OneThreadDrive { pool: self.name(), drive: drive.info().label.to_string() })
    }

    /// Refuses a drive that is too small for the place of one that is out.
    fn check_takes_place(&self, old: u32, new: (&str, u64)) -> Result<(), PoolError> {
        let (manifest, books) = (self.manifest.borrow(), self.space.borrow().clone());
        self.spare_planner().check_takes_place(&manifest, books, old, new)
    }

    /// Excludes the old drive where it still takes part, and gives its place to a spare.
    async fn put_in_place(&self, old: u32, number: u32) -> Result<(), PoolError> {
        let (was_online, role) = {
            let manifest = self.manifest.borrow();
            let record = manifest.drive(old).expect("just found");
            (record.is_online(), record.role)
        };
        if was_online {
            let path = self.manifest.borrow().path_of(number);
            match self.drives.get(old) {
                Some(drive) => {
                    self.exclude_member(drive.member.label(), &format!("replaced by {path}")).await?
                }
                None => self.commit(None, |_| ()).await?,
            }
        }
        match role {
            Role::Spare => self.commit(None, move |manifest| manifest.set_replaced(old)).await?,
            Role::Data | Role::Fast | Role::Journal => self.allocate_on(old, number, None).await?,
        }
        self.kick_jobs();
        Ok(())
    }

    /// Takes a drive into the pool as successor of one that works.
    pub(crate) async fn add_successor(
        &self,
        drive: Rc<dyn Drive>,
        force: bool,
        old: u32,
    ) -> Result<u32, PoolError> {
        // Columns that are leaving the old drive need no room.
        self.freed.until_reclaimed().await;
        self.add_drive(drive, Role::Spare, force, Place::After(old)).await
    }

    /// Takes a drive into the pool.
    async fn add_drive(
        &self,
        drive: Rc<dyn Drive>,
        role: Role,
        force: bool,
        place: Place,
    ) -> Result<u32, PoolError> {
        let for_place = match place {
            Place::Of(old) => Some(old),
            Place::New | Place::After(_) => None,
        };
        let before = self.check_new_drive(&drive, force, for_place).await?;
        let path = drive.info().label.to_string();
        let capacity_bytes = drive.info().capacity_bytes;
        let id = self.ids.borrow_mut().next();
        let (number, room) = {
            let mut planned = self.manifest.borrow().clone();
            let number = planned.add_drive(id, &path, role, capacity_bytes);
            (number, self.commits.check_growth(&planned))
        };
        room?;
        if let Some(before) = before {
            self.drives.let_go(before);
        }
        // The place that it is to have in the end is given up when it takes it.
        let given_up = before.filter(|before| Some(*before) != for_place);
        let member = Member::new(&self.context, drive, self.options.member());
        if let Err(error) = writer::begin(&member).await {
            member.stop();
            return Err(error.into());
        }
        let open = OpenDrive { member: member.clone(), errors_before: Errors::default(), behind: None };
        self.drives.insert(number, open);
        self.set_background_share();
        let joined = format!("{path} was added");
        let time_unix_ms = self.news.unix_ms();
        let pool = self.rc();
        let added = self
            .try_commit(Some(number), move |manifest| {
                assert_eq!(manifest.add_drive(id, &path, role, capacity_bytes), number);
                if let Some(given_up) = given_up {
                    manifest.set_replaced(given_up);
                }
                manifest.events.push(time_unix_ms, EventKind::Drive, &joined);
                if let Place::After(old) = place {
                    manifest.enter_successor(&pool.space.borrow(), (old, number), pool.news.unix_ms())?;
                }
                if matches!(place, Place::New) && role == Role::Data {
                    pool.rebalance_onto_new(manifest);
                }
                Ok(Change::Commit(()))
            })
            .await;
        if let Err(error) = added {
            self.drives.remove(number);
            member.stop();
            return Err(error);
        }
        Ok(number)
    }

    /// The record that a drive which is to come in has had so far, if it is one of the pool's own;
    /// refused where that is in use, or what the drive holds may be of use.
    async fn check_new_drive(
        &self,
        drive: &Rc<dyn Drive>,
        force: bool,
        for_place: Option<u32>,
    ) -> Result<Option<u32>, PoolError> {
        let info = drive.info();
        let label = info.label.to_string();
        let slab_bytes = {
            let manifest = self.manifest.borrow();
            let taking_part = manifest.drives.iter().filter(|drive| drive.is_online()).count();
            if manifest.drives.len() >= MAX_DRIVE_RECORDS || taking_part >= MAX_DRIVES {
                return Err(PoolError::TooManyDrives { given: taking_part + 1, allowed: MAX_DRIVES });
            }
            manifest.slab_bytes
        };
        self.check_threads(drive)?;
        addresses::refuse_too_large(&label, info.capacity_bytes)?;
        if addresses::slab_count(info.capacity_bytes, slab_bytes) == 0 {
            let capacity_bytes = info.capacity_bytes;
            let needed_bytes = least_capacity_bytes(slab_bytes);
            return Err(PoolError::DriveTooSmall { drive: label, capacity_bytes, needed_bytes });
        }
        if let Some(record) = self.drives.same_online(&self.manifest.borrow(), drive) {
            return Err(PoolError::DriveInPool { drive: label, id: record.id });
        }
        let content = slots::read_in_time(&self.context, &self.options.member, &**drive).await?;
        let manifest = self.manifest.borrow();
        // A drive that was overwritten since it was opened is still the drive of that record.
        let is_open = |record: &&DriveRecord| {
            self.drives.get(record.number).is_some_and(|open| open.member.is_of(drive))
        };
        let ours = content.identity().filter(|(pool_id, _)| *pool_id == self.pool_id);
        let named = ours.and_then(|(_, drive_id)| manifest.drive_by_id(drive_id));
        let known = named.or_else(|| manifest.drives.iter().find(is_open));
        let Some(record) = known else {
            return match force || ours.is_some() {
                true => Ok(None),
                false => refuse_taken(&label, content).map(|()| None),
            };
        };
        let (number, id) = (record.number, record.id);
        if self.working_member(number).is_some() {
            return Err(PoolError::DriveInPool { drive: label, id });
        }
        let needs = |volume: &&VolumeRecord| volume.parts.iter().any(|part| part.needs(number));
        if let Some(volume) = manifest.volumes.iter().find(needs).filter(|_| !force) {
            return Err(PoolError::OnlyCopy { drive: label, volume: volume.name.clone() });
        }
        if mutation::is_chosen(Mutation::OwnDriveTwice) {
            return Ok(None);
        }
        let is_of_no_use = record.replaced
            || record.exclusion() == Some(ExclusionKind::Failed)
            || self.drives.is_stale(number);
        if force || is_of_no_use || for_place == Some(number) {
            return Ok(Some(number));
        }
        Err(PoolError::DriveOut { drive: label, id })
    }
}
