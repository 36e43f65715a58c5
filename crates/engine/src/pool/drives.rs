//! Drives in and out: failing one, adding a spare, replacing, and spares that take over by themselves.
//!
//! A replacement goes in as a spare first; only then is the old drive excluded and its place taken. So a replacement that
//! cannot even be written changes nothing, and a cut between the steps leaves a spare that takes over at the next start.

use std::rc::Rc;

use stripewise_drive::{Drive, DriveError, IoRequest};

use super::commit::Change;
use super::error::PoolError;
use super::format::{Errors, MAX_DRIVE_RECORDS, MIB, Manifest, Role, SlotState, VolumeRecord, end_of_space};
use super::ids::DriveId;
use super::superblock::{self, Content};
use super::{Inner, OpenDrive, Pool};
use crate::member::{Class, Member};

impl Pool {
    /// Takes a drive out of service: recorded on all others when this ends. Volumes that cannot do without it fail: they
    /// take no more writes, and what can still be read of them can be read.
    pub async fn fail_drive(&self, id: DriveId, reason: &str) -> Result<(), PoolError> {
        let inner = &self.0;
        inner.check_changeable()?;
        let number = inner.number_of(id)?;
        match inner.open_drive(number) {
            Some(drive) => inner.exclude_member(&drive.member, reason).await,
            // Not there anyway: the commit finds that out.
            None => inner.commit(None, |_| ()).await,
        }
    }

    /// Volumes that could not be read any more without this drive.
    pub fn volumes_depending_on(&self, id: DriveId) -> Result<Vec<String>, PoolError> {
        let number = self.0.number_of(id)?;
        Ok(self.0.depending_on(number))
    }

    /// Adds a drive that waits for another to fail. With `force` a drive of another pool is taken over.
    pub async fn add_spare(&self, drive: Rc<dyn Drive>, force: bool) -> Result<DriveId, PoolError> {
        let inner = &self.0;
        inner.check_changeable()?;
        let _alone = inner.administering.acquire(1).await;
        inner.check_changeable()?;
        let needed_bytes = inner.manifest.borrow().volumes.iter().map(VolumeRecord::end_bytes).max();
        let number = inner.add_drive(drive, force, needed_bytes.unwrap_or(0)).await?;
        inner.after_exclusion();
        let manifest = inner.manifest.borrow();
        Ok(manifest.drive(number).expect("just added").id)
    }

    /// Puts a new drive in the place of one that failed, is missing, or (where its volumes can spare it meanwhile) still
    /// works. The rebuild is recorded, and begins when jobs run. `new` may be the old drive itself, wiped or not. With
    /// `force` a drive of another pool is taken over.
    pub async fn replace(&self, old: DriveId, new: Rc<dyn Drive>, force: bool) -> Result<DriveId, PoolError> {
        let inner = &self.0;
        inner.check_changeable()?;
        let _alone = inner.administering.acquire(1).await;
        inner.check_changeable()?;
        let old = inner.number_of(old)?;
        inner.check_replaceable(old)?;
        let number = match inner.spare_at(&new).filter(|spare| *spare != old) {
            Some(spare) => spare,
            None => inner.add_drive(new, force, inner.needed_for(old)).await?,
        };
        let id = inner.manifest.borrow().drive(number).expect("just found or added").id;
        inner.put_in_place(old, number).await?;
        Ok(id)
    }

    /// As [`Self::replace`], with a spare that the pool has.
    pub async fn replace_by_spare(&self, old: DriveId, spare: DriveId) -> Result<(), PoolError> {
        let inner = &self.0;
        inner.check_changeable()?;
        let _alone = inner.administering.acquire(1).await;
        inner.check_changeable()?;
        let (old, number) = (inner.number_of(old)?, inner.number_of(spare)?);
        let record = inner.manifest.borrow().drive(number).cloned().expect("just found");
        if record.role != Role::Spare || inner.working_member(number).is_none() || number == old {
            return Err(PoolError::DriveInPool { drive: record.path, id: spare });
        }
        let needed_bytes = inner.needed_for(old);
        if record.end_bytes() < needed_bytes {
            let capacity_bytes = record.capacity_bytes;
            return Err(PoolError::DriveTooSmall { drive: record.path, capacity_bytes, needed_bytes });
        }
        inner.check_replaceable(old)?;
        inner.put_in_place(old, number).await
    }
}

impl Inner {
    fn number_of(&self, id: DriveId) -> Result<u32, PoolError> {
        let manifest = self.manifest.borrow();
        match manifest.drive_by_id(id) {
            Some(drive) => Ok(drive.number),
            None => Err(PoolError::NoSuchDrive { pool: manifest.name.clone(), id }),
        }
    }

    fn path_of(&self, number: u32) -> String {
        self.manifest.borrow().drive(number).map_or_else(String::new, |drive| drive.path.clone())
    }

    fn depending_on(&self, number: u32) -> Vec<String> {
        let manifest = self.manifest.borrow();
        let is_away = |other: u32| self.working_member(other).is_none();
        let depends = |volume: &&VolumeRecord| {
            volume.survives(is_away) && !volume.survives(|other| other == number || is_away(other))
        };
        manifest.volumes.iter().filter(depends).map(|volume| volume.name.clone()).collect()
    }

    /// Bytes that a drive needs to take another's place.
    fn needed_for(&self, old: u32) -> u64 {
        let manifest = self.manifest.borrow();
        let on_it =
            manifest.volumes.iter().filter(|volume| volume.slots.iter().any(|slot| slot.drive == old));
        on_it.map(VolumeRecord::end_bytes).max().unwrap_or(0)
    }

    fn check_replaceable(&self, old: u32) -> Result<(), PoolError> {
        let volumes = if self.manifest.borrow().is_online(old) { self.depending_on(old) } else { Vec::new() };
        if volumes.is_empty() {
            return Ok(());
        }
        Err(PoolError::NeedsRedundancy { drive: self.path_of(old), volumes })
    }

    /// The spare that a drive given as a replacement is already.
    fn spare_at(&self, drive: &Rc<dyn Drive>) -> Option<u32> {
        let manifest = self.manifest.borrow();
        let drives = self.drives.borrow();
        let mut spares =
            manifest.drives.iter().filter(|record| record.role == Role::Spare && record.is_online());
        let is_it = |record: &&super::format::DriveRecord| {
            drives.get(&record.number).is_some_and(|open| is_same_drive(open, drive))
        };
        spares.find(is_it).map(|record| record.number)
    }

    /// Excludes the old drive where it still takes part, and gives its place to a spare.
    async fn put_in_place(&self, old: u32, number: u32) -> Result<(), PoolError> {
        let (was_online, role) = {
            let manifest = self.manifest.borrow();
            let record = manifest.drive(old).expect("just found");
            (record.is_online(), record.role)
        };
        if was_online {
            let path = self.path_of(number);
            match self.open_drive(old) {
                Some(drive) => self.exclude_member(&drive.member, &format!("replaced by {path}")).await?,
                None => self.commit(None, |_| ()).await?,
            }
        }
        match role {
            Role::Data => self.take_over(old, number).await?,
            Role::Spare => self.commit(None, move |manifest| manifest.set_replaced(old)).await?,
        }
        self.kick_jobs();
        Ok(())
    }

    /// Takes a drive into the pool as a spare.
    async fn add_drive(
        &self,
        drive: Rc<dyn Drive>,
        force: bool,
        needed_bytes: u64,
    ) -> Result<u32, PoolError> {
        self.check_new_drive(&drive, force, needed_bytes).await?;
        let path = drive.info().label.to_string();
        let capacity_bytes = drive.info().capacity_bytes;
        let id = self.ids.borrow_mut().next();
        let (number, room) = {
            let mut planned = self.manifest.borrow().clone();
            let number = planned.add_drive(id, &path, Role::Spare, capacity_bytes);
            (number, Self::check_room(&planned))
        };
        room?;
        let member = Member::new(&self.context, drive, self.options.member);
        if let Err(error) = superblock::wipe(&member).await {
            member.stop();
            return Err(error.into());
        }
        let open = OpenDrive { member: member.clone(), errors_before: Errors::default() };
        self.drives.borrow_mut().insert(number, open);
        self.set_background_share();
        let added = self
            .try_commit(Some(number), move |manifest| {
                assert_eq!(manifest.add_drive(id, &path, Role::Spare, capacity_bytes), number);
                Ok(Change::Commit(()))
            })
            .await;
        if let Err(error) = added {
            self.drives.borrow_mut().remove(&number);
            member.stop();
            return Err(error);
        }
        Ok(number)
    }

    async fn check_new_drive(
        &self,
        drive: &Rc<dyn Drive>,
        force: bool,
        needed_bytes: u64,
    ) -> Result<(), PoolError> {
        let info = drive.info();
        let label = info.label.to_string();
        if self.manifest.borrow().drives.len() >= MAX_DRIVE_RECORDS {
            return Err(PoolError::TooManyDrives {
                given: MAX_DRIVE_RECORDS + 1,
                allowed: MAX_DRIVE_RECORDS,
            });
        }
        let needed_bytes = needed_bytes.max(3 * MIB) + MIB;
        if end_of_space(info.capacity_bytes) + MIB < needed_bytes {
            let capacity_bytes = info.capacity_bytes;
            return Err(PoolError::DriveTooSmall { drive: label, capacity_bytes, needed_bytes });
        }
        for (number, open) in self.drives.borrow().iter() {
            let manifest = self.manifest.borrow();
            let Some(record) = manifest.drive(*number).filter(|record| record.is_online()) else { continue };
            if is_same_drive(open, drive) {
                return Err(PoolError::DriveInPool { drive: label, id: record.id });
            }
        }
        let superblock = match superblock::read_in_time(&self.context, &self.options.member, &**drive).await?
        {
            Content::None => return Ok(()),
            Content::Valid { superblock, .. } => superblock,
            Content::Newer(version) if !force => {
                let known = superblock::FORMAT_VERSION;
                return Err(PoolError::NewerFormat { drive: label, version, known });
            }
            Content::Unknown(flags) if !force => {
                return Err(PoolError::UnknownFeatures { drive: label, flags });
            }
            Content::Newer(_) | Content::Unknown(_) => return Ok(()),
        };
        if superblock.pool_id != self.pool_id {
            if force {
                return Ok(());
            }
            return Err(PoolError::DriveOfOtherPool {
                drive: label,
                pool_name: superblock.manifest.name,
                pool_id: superblock.pool_id,
            });
        }
        // One of ours: welcome back, unless it is in use, or holds what nobody else has.
        let manifest = self.manifest.borrow();
        let Some(record) = manifest.drive_by_id(superblock.drive_id) else { return Ok(()) };
        if self.working_member(record.number).is_some() {
            return Err(PoolError::DriveInPool { drive: label, id: record.id });
        }
        let needs = |volume: &&VolumeRecord| {
            volume.slots.iter().any(|slot| slot.drive == record.number && slot.state == SlotState::Active)
        };
        match manifest.volumes.iter().find(needs) {
            Some(volume) if !force => Err(PoolError::OnlyCopy { drive: label, volume: volume.name.clone() }),
            _ => Ok(()),
        }
    }

    /// Gives a drive's slots that hold nothing current to another, or to itself when it came back; records that they are
    /// to be rebuilt.
    async fn take_over(&self, old: u32, new: u32) -> Result<(), PoolError> {
        let Some(member) = self.working_member(new) else {
            return Err(PoolError::Job(format!("{} failed before it could take over", self.path_of(new))));
        };
        let slots = slots_to_rebuild(&self.manifest.borrow(), old);
        if let Err(error) = clear_maps(&member, &slots).await {
            // No good to anybody.
            self.exclude_member(&member, &error.to_string()).await?;
            return Err(error.into());
        }
        self.commit(None, move |manifest| {
            for (volume, slot) in slots_to_rebuild(manifest, old) {
                let volume = manifest.volume_by_id_mut(volume.id).expect("just found");
                volume.slots[slot].drive = new;
                volume.slots[slot].state = SlotState::Rebuilding { next_region: 0 };
            }
            if let Some(drive) = manifest.drive_mut(new) {
                drive.role = Role::Data;
            }
            if old != new {
                manifest.set_replaced(old);
            }
        })
        .await?;
        for (volume, slot) in slots {
            self.jobs.forget_stall(volume.id, slot);
            let Some(array) = self.array(volume.id) else { continue };
            let is_due = self.manifest.borrow().volume_by_id(volume.id).is_some_and(|volume| {
                let slot = volume.slots[slot];
                slot.drive == new && matches!(slot.state, SlotState::Rebuilding { .. })
            });
            if is_due && array.missing().contains(slot) && !array.is_protected() {
                array.attach(slot, member.clone()).await?;
            }
        }
        self.set_background_share();
        Ok(())
    }

    /// Has spares take over what failed drives leave, and drives that came back catch up. Ends when nothing is left to do.
    pub(super) async fn heal(&self) -> Result<(), PoolError> {
        let _alone = self.administering.acquire(1).await;
        while !self.closed.get() {
            let Some((old, new)) = self.next_to_heal() else { return Ok(()) };
            let outcome = self.take_over(old, new).await;
            // A spare that fails at this gives way to the next.
            if outcome.is_err() && self.working_member(new).is_some() {
                return outcome;
            }
        }
        Ok(())
    }

    /// A drive whose place could be taken, and by which.
    fn next_to_heal(&self) -> Option<(u32, u32)> {
        let manifest = self.manifest.borrow();
        for drive in manifest.drives.iter().filter(|drive| drive.role == Role::Data && !drive.replaced) {
            if slots_to_rebuild(&manifest, drive.number).is_empty() {
                continue;
            }
            if self.working_member(drive.number).is_some() {
                return Some((drive.number, drive.number));
            }
            if drive.is_online() {
                continue;
            }
            let needed_bytes = self.needed_for(drive.number);
            let spares = manifest.drives.iter().filter(|spare| {
                spare.role == Role::Spare
                    && spare.end_bytes() >= needed_bytes
                    && self.working_member(spare.number).is_some()
            });
            if let Some(spare) = spares.min_by_key(|spare| (spare.capacity_bytes, spare.number)) {
                return Some((drive.number, spare.number));
            }
        }
        None
    }
}

/// Makes sure that nothing which an earlier life of the drive left is taken for these volumes' region maps.
async fn clear_maps(member: &Rc<Member>, slots: &[(VolumeRecord, usize)]) -> Result<(), DriveError> {
    for (volume, _) in slots {
        let map_bytes = volume.spec().geometry().map_or(0, |(_, map_bytes)| map_bytes);
        superblock::zero(member, volume.base_bytes, map_bytes).await?;
    }
    member.submit(Class::Foreground, IoRequest::flush()).await
}

/// Whether an open drive is this one, under the same name perhaps opened again.
fn is_same_drive(open: &OpenDrive, drive: &Rc<dyn Drive>) -> bool {
    open.member.is_of(drive) || open.member.label() == &drive.info().label
}

/// Slots of a drive that hold nothing current, in volumes from which they can be rebuilt.
fn slots_to_rebuild(manifest: &Manifest, drive: u32) -> Vec<(VolumeRecord, usize)> {
    let is_away = |number: u32| !manifest.is_online(number);
    let mut slots = Vec::new();
    for volume in manifest.volumes.iter().filter(|volume| volume.survives(is_away)) {
        for (index, slot) in volume.slots.iter().enumerate() {
            if slot.drive == drive && slot.state == SlotState::Missing {
                slots.push((volume.clone(), index));
            }
        }
    }
    slots
}
