//! Drives that leave: failed, taken offline, retired or removed.
//!
//! An offline drive keeps its data and catches up when it returns. A retired drive is emptied first
//! (`jobs/drain.rs`) and then removed; the request is recorded, so the next process that opens the
//! pool continues it. A request that could not be completed is refused at once. Fault expected: the
//! drive fails before it is empty; its data is then rebuilt.

use std::rc::Rc;

use crate::error::{LogTask, PoolError};
use crate::manifest::drive_record::{Exclusion, ExclusionKind};
use crate::manifest::events::EventKind;
use crate::manifest::format::{MAX_FORMER, Manifest};
use crate::manifest::ids::DriveId;
use crate::manifest::volume_record::{PartRecord, VolumeRecord};
use crate::open_drives::OpenDrive;
use crate::space::evacuation::slabs_on;
use crate::superblock::commit::Change;
use crate::superblock::released::release;
use crate::{Inner, Pool};
use stripewise_array::{Array, BlockArray};

impl Pool {
    /// Excludes a drive; recorded on all others when this returns. Volumes that cannot do without
    /// it become read-only, and only what the other drives hold can still be read.
    pub async fn fail_drive(&self, id: DriveId, reason: &str) -> Result<(), PoolError> {
        let inner = &self.0;
        inner.check_changeable()?;
        let number = inner.manifest.borrow().number_of(id)?;
        match inner.drives.get(number).filter(|_| inner.manifest.borrow().is_online(number)) {
            Some(drive) => inner.exclude_member(drive.member.label(), reason).await,
            // The drive is not available: the commit notices that.
            None => inner.commit(None, |_| ()).await,
        }
    }

    /// Names of the volumes that could not be read without this drive.
    pub fn volumes_depending_on(&self, id: DriveId) -> Result<Vec<String>, PoolError> {
        let number = self.0.manifest.borrow().number_of(id)?;
        Ok(self.0.drives.depending_on(&self.0.manifest.borrow(), number))
    }

    /// Number of further drives that each volume on a drive could lose after this one, by name.
    pub fn redundancy_without(&self, id: DriveId) -> Result<Vec<(String, usize)>, PoolError> {
        let inner = &self.0;
        let number = inner.manifest.borrow().number_of(id)?;
        let mut planned = inner.manifest.borrow().clone();
        let on_it =
            |volume: &VolumeRecord| volume.parts.iter().any(|part| part.drives().any(|on| on == number));
        let names: Vec<String> =
            planned.volumes.iter().filter(|volume| on_it(volume)).map(|volume| volume.name.clone()).collect();
        let reason = String::new();
        planned.exclude(&[Exclusion { drive: number, reason, kind: ExclusionKind::Offline }]);
        let left = |name: String| {
            let volume = planned.volume(&name)?;
            let left = inner.volume_info(&planned, volume).redundancy_left;
            Some((name, left))
        };
        Ok(names.into_iter().filter_map(left).collect())
    }

    /// Takes a drive offline: its place is kept, and it catches up when it returns
    /// ([`Self::online`]). Refused if a volume could not be read without it.
    pub async fn offline(&self, id: DriveId) -> Result<(), PoolError> {
        let inner = &self.0;
        let _alone = inner.administer().await?;
        let number = inner.manifest.borrow().number_of(id)?;
        let record = inner.manifest.borrow().drive(number).cloned().expect("just found");
        if record.exclusion() == Some(ExclusionKind::Offline) {
            let what = "is already offline".to_owned();
            return Err(PoolError::DriveStanding { drive: record.path, what });
        }
        inner.drives.check_spared(&inner.manifest.borrow(), number)?;
        // Makes all data on the drive durable; later writes are known to be missing on it.
        let arrays = inner.volumes.arrays();
        for array in arrays.iter().filter(|array| !array.visit(Array::is_protected)) {
            array.call(async |array| array.flush_internally().await).await?;
        }
        for log in inner.volumes.logs().into_iter().filter(|log| !log.is_protected()) {
            log.flush().await?;
        }
        let pool = inner.rc();
        inner
            .try_commit(None, move |manifest| {
                if manifest.is_online(number) {
                    // Other drives may have failed in the meantime.
                    let volumes = pool.drives.depending_on(&pool.manifest.borrow(), number);
                    if !volumes.is_empty() {
                        return Err(PoolError::NeedsRedundancy {
                            drive: pool.manifest.borrow().path_of(number),
                            volumes,
                        });
                    }
                }
                let reason = "it was taken offline".to_owned();
                manifest.exclude(&[Exclusion { drive: number, reason, kind: ExclusionKind::Offline }]);
                Ok(Change::Commit(()))
            })
            .await
    }

    /// Removes a drive that holds nothing current: a spare, an empty drive, or an excluded one
    /// whose place others have taken or can take. Refused if it holds data; [`Self::retire`]
    /// empties it first.
    pub async fn remove(&self, id: DriveId) -> Result<(), PoolError> {
        let inner = &self.0;
        let _alone = inner.administer().await?;
        let number = inner.manifest.borrow().number_of(id)?;
        inner.drives.check_not_the_last(&inner.manifest.borrow(), number)?;
        inner.manifest.borrow().check_holds_nothing(number)?;
        inner.spare_planner().check_not_needed_as_room(
            &inner.manifest.borrow(),
            &inner.space.borrow(),
            number,
        )?;
        let released = inner.release_drive(number).await?;
        inner.kick_jobs();
        match released {
            true => Ok(()),
            // Something was placed on it in the meantime.
            false => inner.manifest.borrow().check_holds_nothing(number),
        }
    }

    /// Empties a drive and then removes it. Recorded when this returns, and done when jobs run.
    /// Refused if the other drives have no room for its content. An excluded drive cannot be
    /// emptied, only replaced.
    pub async fn retire(&self, id: DriveId) -> Result<(), PoolError> {
        let inner = &self.0;
        let _alone = inner.administer().await?;
        let number = inner.manifest.borrow().number_of(id)?;
        let record = inner.manifest.borrow().drive(number).cloned().expect("just found");
        if inner.working_member(number).is_none() {
            let what = "is out of service, so it cannot be emptied; use `pool replace` or `pool remove`";
            return Err(PoolError::DriveStanding { drive: record.path, what: what.to_owned() });
        }
        inner.drives.check_not_the_last(&inner.manifest.borrow(), number)?;
        inner.manifest.borrow().check_no_log_on(number)?;
        if record.successor.is_some() {
            inner.manifest.borrow().check_replaceable(number)?;
        }
        let text = format!("{} is to be emptied", record.path);
        let time_unix_ms = inner.news.unix_ms();
        let pool = inner.rc();
        inner
            .try_commit(None, move |manifest| {
                // Checked here, because rows of thin volumes may be placed on it until this commit.
                pool.spare_planner().check_evacuation(manifest, &pool.space.borrow(), number)?;
                let Some(drive) = manifest.drive_mut(number).filter(|drive| !drive.retiring) else {
                    return Ok(Change::Nothing(()));
                };
                drive.retiring = true;
                manifest.events.push(time_unix_ms, EventKind::Drive, &text);
                Ok(Change::Commit(()))
            })
            .await?;
        inner.jobs.forget_stalls();
        inner.kick_jobs();
        Ok(())
    }
}

impl Manifest {
    /// Refuses to move the content of a drive that has a column of a log volume.
    pub(crate) fn check_no_log_on(&self, number: u32) -> Result<(), PoolError> {
        let is_on_it = |part: &PartRecord| part.log.is_some() && part.column_drives().contains(&number);
        let has_it = |volume: &&VolumeRecord| volume.parts.iter().any(is_on_it);
        let Some(volume) = self.volumes.iter().find(has_it) else { return Ok(()) };
        let task = LogTask::Move { drive: self.path_of(number) };
        Err(PoolError::LogVolume { pool: self.name.clone(), volume: volume.name.clone(), task })
    }

    /// Refuses to remove a drive that holds data.
    fn check_holds_nothing(&self, number: u32) -> Result<(), PoolError> {
        let Some(record) = self.drive(number) else { return Ok(()) };
        let holds = |part: &PartRecord| {
            if record.is_online() { part.drives().any(|drive| drive == number) } else { part.needs(number) }
        };
        let volumes = self.volumes.iter().filter(|volume| volume.parts.iter().any(holds));
        let volumes: Vec<String> = volumes.map(|volume| volume.name.clone()).collect();
        if volumes.is_empty() {
            return Ok(());
        }
        let slabs = self.parts().map(|part| slabs_on(part, number)).sum();
        Err(PoolError::DriveInUse { drive: record.path.clone(), slabs, volumes })
    }
}

impl Inner {
    /// Removes a drive's record from the pool if nothing is on it, and wipes the drive if it is
    /// available. True if it was removed.
    pub(crate) async fn release_drive(&self, number: u32) -> Result<bool, PoolError> {
        // Freed slabs may still be read.
        self.freed.until_reclaimed().await;
        let pool = self.rc();
        let path = self.manifest.borrow().path_of(number);
        let taken: Rc<std::cell::RefCell<Option<OpenDrive>>> = Rc::default();
        let keep = taken.clone();
        let time_unix_ms = self.news.unix_ms();
        let committed = self
            .try_commit(None, move |manifest| {
                let Some(record) = manifest.drive(number) else { return Ok(Change::Nothing(false)) };
                let (id, is_online) = (record.id, record.is_online());
                let named = manifest.named_drives().contains(&number);
                if manifest.is_needed(number) || (is_online && named) {
                    return Ok(Change::Nothing(false));
                }
                let successor = record.successor.and_then(|successor| manifest.drive(successor));
                let text = match successor {
                    Some(successor) => {
                        format!("{} replaced {path}, which was removed", successor.path)
                    }
                    None => format!("{path} was removed"),
                };
                manifest.events.push(time_unix_ms, EventKind::Drive, &text);
                if named {
                    // Other drives still have to take over the columns that it lacks.
                    manifest.set_replaced(number);
                    return Ok(Change::Commit(true));
                }
                manifest.drives.retain(|drive| drive.number != number);
                manifest.former.push(id);
                let surplus = manifest.former.len().saturating_sub(MAX_FORMER);
                manifest.former.drain(..surplus);
                // From here on the pool does not look for it, so it need not be marked as failed.
                *keep.borrow_mut() = pool.drives.remove(number);
                Ok(Change::Commit(true))
            })
            .await;
        let taken = taken.take();
        let released = match committed {
            Ok(released) => released,
            Err(error) => {
                if let Some(open) = taken {
                    self.drives.put_back(number, open);
                }
                return Err(error);
            }
        };
        if let Some(open) = taken {
            // The pool no longer knows the drive in any case: if this fails, the next use of the
            // drive needs `--force`.
            if !open.member.is_failed() {
                let _ = release(&open.member).await;
            }
            open.member.fail("it was removed from the pool");
            open.member.stop();
            open.member.release();
        }
        Ok(released)
    }
}
