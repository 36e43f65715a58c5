//! Drives that go: failed by hand, taken offline, emptied, given back.
//!
//! Taken offline, a drive keeps what it has and catches up when it returns. Retired, it is emptied
//! first (`jobs/drain.rs`) and then let go of; that is recorded, so the next process to open the
//! pool goes on with it. Everything is refused beforehand that could not be done to its end. Faults
//! expected: drives that fail meanwhile; then there is nothing left to be emptied, and what they
//! had is rebuilt.

use std::rc::Rc;

use crate::pool::error::PoolError;
use crate::pool::manifest::drive_record::{Exclusion, ExclusionKind};
use crate::pool::manifest::events::EventKind;
use crate::pool::manifest::format::{MAX_FORMER, Manifest};
use crate::pool::manifest::ids::DriveId;
use crate::pool::manifest::volume_record::{PartRecord, VolumeRecord};
use crate::pool::open_drives::OpenDrive;
use crate::pool::space::evacuation::slabs_on;
use crate::pool::superblock::commit::Change;
use crate::pool::superblock::writer;
use crate::pool::{Inner, Pool};

impl Pool {
    /// Takes a drive out of service: recorded on all others when this ends. Volumes that cannot do
    /// without it fail: they take no more writes, and what can still be read of them can be read.
    pub async fn fail_drive(&self, id: DriveId, reason: &str) -> Result<(), PoolError> {
        let inner = &self.0;
        inner.check_changeable()?;
        let number = inner.manifest.borrow().number_of(id)?;
        match inner.drives.get(number).filter(|_| inner.manifest.borrow().is_online(number)) {
            Some(drive) => inner.exclude_member(&drive.member, reason).await,
            // Not there anyway: the commit finds that out.
            None => inner.commit(None, |_| ()).await,
        }
    }

    /// Volumes that could not be read any more without this drive.
    pub fn volumes_depending_on(&self, id: DriveId) -> Result<Vec<String>, PoolError> {
        let number = self.0.manifest.borrow().number_of(id)?;
        Ok(self.0.drives.depending_on(&self.0.manifest.borrow(), number))
    }

    /// How many more drives each volume that lies on a drive could lose without it, by name.
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

    /// Takes a drive out for a while: no drive takes over from it, and when it is back
    /// ([`Self::online`]) it catches up. Refused where a volume could not be read without it.
    pub async fn offline(&self, id: DriveId) -> Result<(), PoolError> {
        let inner = &self.0;
        let _alone = inner.administer().await?;
        let number = inner.manifest.borrow().number_of(id)?;
        let record = inner.manifest.borrow().drive(number).cloned().expect("just found");
        if record.exclusion() == Some(ExclusionKind::Offline) {
            let what = "is offline already".to_owned();
            return Err(PoolError::DriveStanding { drive: record.path, what });
        }
        inner.drives.check_spared(&inner.manifest.borrow(), number)?;
        // What it is asked to keep is made durable there; what is written from now on it is known
        // to lack.
        let arrays = inner.volumes.arrays();
        for array in arrays.iter().filter(|array| !array.is_protected()) {
            array.flush_internally().await?;
        }
        let pool = inner.rc();
        inner
            .try_commit(None, move |manifest| {
                if manifest.is_online(number) {
                    // Others may have gone while this waited.
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

    /// Lets go of a drive that holds nothing current: a spare, an empty one, one that is out and
    /// whose place others have, or can, take. Refused where it holds something; [`Self::retire`]
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
            // Something was put on it, just now.
            false => inner.manifest.borrow().check_holds_nothing(number),
        }
    }

    /// Empties a drive and then lets go of it. Recorded when this ends; it is done when jobs run.
    /// Refused where the other drives have no room for what it holds. A drive that is out is not
    /// emptied but replaced.
    pub async fn retire(&self, id: DriveId) -> Result<(), PoolError> {
        let inner = &self.0;
        let _alone = inner.administer().await?;
        let number = inner.manifest.borrow().number_of(id)?;
        let record = inner.manifest.borrow().drive(number).cloned().expect("just found");
        if inner.working_member(number).is_none() {
            let what =
                "is out of service, so it cannot be emptied; `pool replace` or `pool remove` is for it";
            return Err(PoolError::DriveStanding { drive: record.path, what: what.to_owned() });
        }
        inner.drives.check_not_the_last(&inner.manifest.borrow(), number)?;
        if record.successor.is_some() {
            inner.manifest.borrow().check_replaceable(number)?;
        }
        let text = format!("{} is to be emptied", record.path);
        let time_unix_ms = inner.news.unix_ms();
        let pool = inner.rc();
        inner
            .try_commit(None, move |manifest| {
                // Here, since rows of thin volumes may be put on it until this counts.
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
    /// Refuses to let go of a drive that holds something.
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
    /// Takes a drive's record out of the pool where nothing is on it, and wipes it where it is at
    /// hand; whether it did.
    pub(in crate::pool) async fn release_drive(&self, number: u32) -> Result<bool, PoolError> {
        // Slabs that were just freed may still be read.
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
                        format!("{} has the place of {path}, which was let go of", successor.path)
                    }
                    None => format!("{path} was let go of"),
                };
                manifest.events.push(time_unix_ms, EventKind::Drive, &text);
                if named {
                    // What it lacks stays to be taken over by others.
                    manifest.set_replaced(number);
                    return Ok(Change::Commit(true));
                }
                manifest.drives.retain(|drive| drive.number != number);
                manifest.former.push(id);
                let surplus = manifest.former.len().saturating_sub(MAX_FORMER);
                manifest.former.drain(..surplus);
                // From here on nobody looks for it, so it need not be failed to be let go of.
                *keep.borrow_mut() = pool.drives.remove(number);
                Ok(Change::Commit(true))
            })
            .await;
        let taken = taken.take();
        let released = match committed {
            Ok(released) => released,
            Err(error) => {
                if let Some(open) = taken {
                    self.drives.insert(number, open);
                }
                return Err(error);
            }
        };
        if let Some(open) = taken {
            // Advice to the next look at the drive; the pool does not know it any more in any
            // case.
            if !open.member.is_failed() {
                let _ = writer::wipe(&open.member).await;
            }
            open.member.fail("it was let go of");
            open.member.stop();
            open.member.release();
        }
        Ok(released)
    }
}
