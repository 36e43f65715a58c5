//! Replacement of a working drive: the new drive becomes its successor, and the old one stays a
//! member until the successor has all its content.
//!
//! Columns, copies of maps and areas of journals move from the old drive to its successor as they
//! move off a retiring drive (`jobs/drain.rs`): they are written in both places until a commit
//! records the new one. So each row has all its columns at any time, and a further drive may be
//! lost during the replacement. When the old drive is empty, one commit removes its record, and the
//! successor becomes a drive like any other. Until then both drives are online, and new rows are
//! placed on the old one, as many as the successor has room for.
//!
//! Faults expected. The old drive fails: what has moved stays, the rest is rebuilt onto the
//! successor (`sparing/mod.rs`). The successor fails or is excluded: the replacement is cancelled,
//! the old drive stays a member like any other, and what had moved is rebuilt. A power cut: the
//! next opening continues, because the old drive's record names the successor.

use std::rc::Rc;

use stripewise_drive::Drive;

use crate::error::PoolError;
use crate::manifest::drive_record::{DriveRecord, Role};
use crate::manifest::events::EventKind;
use crate::manifest::format::Manifest;
use crate::manifest::ids::{DriveId, Id};
use crate::manifest::volume_record::PartRecord;
use crate::news::News;
use crate::open_volumes::OpenVolumes;
use crate::space::addresses::{capacity_for, slab_count};
use crate::space::slabs::FreeSlabs;
use crate::superblock::commit::Change;
use crate::{Inner, Pool};
use stripewise_array::Array;

impl Manifest {
    /// The drive that this one is to replace.
    pub(crate) fn predecessor_of(&self, number: u32) -> Option<u32> {
        self.drives.iter().find(|drive| drive.successor == Some(number)).map(|drive| drive.number)
    }

    /// Drives that are being replaced, each with its successor.
    pub(crate) fn replacements(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.drives.iter().filter_map(|drive| Some((drive.number, drive.successor?)))
    }

    /// Ends replacements that are complete, and cancels those whose successor has left; returns the
    /// cancelled ones. Called whenever drives came or left.
    pub(crate) fn end_replacements(&mut self) -> Vec<(u32, u32)> {
        let mut cancelled = Vec::new();
        for (old, new) in self.replacements().collect::<Vec<_>>() {
            if !self.drive(new).is_some_and(DriveRecord::takes_new) {
                if let Some(drive) = self.drive_mut(old) {
                    drive.successor = None;
                }
                cancelled.push((old, new));
            } else if !self.is_online(old) && !self.named_drives().contains(&old) {
                self.set_replaced(old);
            }
        }
        cancelled
    }

    /// As [`Self::end_replacements`], with an event and a notice for each. `known`: has the paths
    /// of drives that this record has dropped.
    pub(crate) fn end_replacements_aloud(&mut self, known: &Manifest, news: &News) {
        for (old, new) in self.end_replacements() {
            let path = |number: u32| {
                let path = self.drive(number).map(|drive| drive.path.clone());
                path.unwrap_or_else(|| known.path_of(number))
            };
            let why = match self.drive(new) {
                Some(drive) if drive.is_online() => "is to be emptied",
                Some(_) => "is out of service",
                None => "was removed",
            };
            let (old, new) = (path(old), path(new));
            let text =
                format!("the replacement of {old} with {new} was cancelled: {new} {why}; {old} stays in use");
            self.events.push(news.unix_ms(), EventKind::Drive, &text);
            news.notice(text);
        }
    }

    /// Fails if a drive is already part of a replacement.
    pub(crate) fn check_replaceable(&self, number: u32) -> Result<(), PoolError> {
        let Some(record) = self.drive(number) else { return Ok(()) };
        let pool = self.name.clone();
        if let Some(successor) = record.successor {
            return Err(PoolError::BeingReplaced {
                pool,
                drive: record.path.clone(),
                by: self.path_of(successor),
            });
        }
        match self.predecessor_of(number) {
            Some(old) => {
                Err(PoolError::BeingReplaced { pool, drive: self.path_of(old), by: record.path.clone() })
            }
            None => Ok(()),
        }
    }

    /// Records a successor: from then on it takes the content of the old drive, and nothing else.
    pub(crate) fn enter_successor(
        &mut self,
        books: &FreeSlabs,
        (old, new): (u32, u32),
        now_unix_ms: u64,
    ) -> Result<(), PoolError> {
        let slab_bytes = self.slab_bytes;
        let (Some(from), Some(to)) = (self.drive(old).cloned(), self.drive(new).cloned()) else {
            return Err(PoolError::Job("a drive of the replacement was removed".to_owned()));
        };
        for drive in [&from, &to] {
            if !drive.is_online() {
                let what = "went out of service before the replacement began".to_owned();
                return Err(PoolError::DriveStanding { drive: drive.path.clone(), what });
            }
        }
        let needed = books.used_slabs(old) + books.used_slabs(new);
        check_holds(&to.path, to.capacity_bytes, needed, slab_bytes)?;
        if from.role == Role::Spare {
            // A spare holds nothing that could move.
            return Ok(());
        }
        if let Some(drive) = self.drive_mut(new) {
            drive.role = from.role;
        }
        if let Some(drive) = self.drive_mut(old) {
            drive.successor = Some(new);
            drive.retiring = false;
        }
        let text = format!("{} is being replaced with {}; it stays in use until then", from.path, to.path);
        self.events.push(now_unix_ms, EventKind::Drive, &text);
        Ok(())
    }
}

impl Pool {
    /// Replaces a working drive: the pool has added the new one, as successor, when this returns.
    /// Refused if it is too small for the content of the old one.
    pub(crate) async fn replace_working(
        &self,
        old: u32,
        new: Rc<dyn Drive>,
        force: bool,
    ) -> Result<DriveId, PoolError> {
        let inner = &self.0;
        inner.manifest.borrow().check_no_log_on(old)?;
        let spare = inner.drives.spare_at(&inner.manifest.borrow(), &new);
        let number = match spare.filter(|spare| *spare != old) {
            Some(spare) => {
                inner.begin_replacement(old, spare).await?;
                spare
            }
            None => inner.add_successor(new, force, old).await?,
        };
        let id = inner.manifest.borrow().drive(number).map(|drive| drive.id);
        inner.after_replacement_began(old).await?;
        id.ok_or_else(|| PoolError::Job("the new drive was removed".to_owned()))
    }
}

impl Inner {
    /// Makes one drive of the pool the successor of another.
    pub(crate) async fn begin_replacement(&self, old: u32, new: u32) -> Result<(), PoolError> {
        // Content that is just moving off the old drive needs no room.
        self.freed.until_reclaimed().await;
        let pool = self.rc();
        self.try_commit(None, move |manifest| {
            manifest.enter_successor(&pool.space.borrow(), (old, new), pool.news.unix_ms())?;
            Ok(Change::Commit(()))
        })
        .await
    }

    /// Completes the replacement of a spare at once, because nothing has to move. All others are up
    /// to the jobs.
    pub(crate) async fn after_replacement_began(&self, old: u32) -> Result<(), PoolError> {
        let is_spare = self.manifest.borrow().drive(old).is_some_and(|drive| drive.role == Role::Spare);
        if is_spare {
            self.release_drive(old).await?;
        }
        self.jobs.forget_stalls();
        self.kick_jobs();
        Ok(())
    }
}

/// Progress of a drive's replacement: bytes of volumes on its successor, and the total of both
/// drives.
pub(crate) fn replacement_bytes(
    volumes: &OpenVolumes,
    manifest: &Manifest,
    (old, new): (u32, u32),
) -> (f64, f64) {
    let of_part = |part: &PartRecord| {
        let array = volumes.array(part.id)?;
        Some(array.visit(|array| (written_on(array, part, new), written_on(array, part, old))))
    };
    let parts = manifest.parts().filter_map(of_part);
    let (done, left) = parts.fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
    (done as f64, (done + left) as f64)
}

/// The replacement that moves content of a part: the successor, and the bytes that it has and that
/// are left to move.
pub(crate) fn replacement_in(
    manifest: &Manifest,
    part: &PartRecord,
    array: &Array,
) -> Option<(Id, u64, u64)> {
    let mut replacements = manifest.replacements();
    let (old, new) =
        replacements.find(|(old, _)| manifest.is_online(*old) && part.drives().any(|on| on == *old))?;
    let id = manifest.drive(new)?.id;
    Some((id, written_on(array, part, new), written_on(array, part, old)))
}

/// Fails if a drive of this capacity has fewer slabs.
pub(crate) fn check_holds(
    label: &str,
    capacity_bytes: u64,
    slabs: u64,
    slab_bytes: u64,
) -> Result<(), PoolError> {
    if u64::from(slab_count(capacity_bytes, slab_bytes)) >= slabs {
        return Ok(());
    }
    let needed_bytes = capacity_for(slabs, slab_bytes);
    Err(PoolError::DriveTooSmall { drive: label.to_owned(), capacity_bytes, needed_bytes })
}

/// Bytes written in a part's rows on a drive.
pub(crate) fn written_on(array: &Array, part: &PartRecord, drive: u32) -> u64 {
    let runs = part.rows.runs().filter(|run| run.places.iter().any(|place| place.drive == drive));
    runs.flat_map(|run| run.first_row..run.end_row()).map(|row| array.row_written_bytes(row)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MIB;
    use crate::manifest::drive_record::{Exclusion, ExclusionKind};
    use crate::sparing::allocation::candidates;
    use crate::testing;

    /// A volume on the first four of five drives, of which drive 1 is being replaced by drive 4.
    fn replacing() -> Manifest {
        let mut manifest = testing::pool(&[64; 5], MIB);
        let drives = manifest.drives.split_off(4);
        testing::add_volume(&mut manifest, 55, stripewise_layout::Level::Raid5, 4, 9);
        manifest.drives.extend(drives);
        manifest.drives[1].successor = Some(4);
        assert_eq!(manifest.check(), Ok(()));
        manifest
    }

    fn out(manifest: &mut Manifest, drive: u32) {
        let reason = "a test".to_owned();
        manifest.exclude(&[Exclusion { drive, reason, kind: ExclusionKind::Failed }]);
    }

    #[test]
    fn successor_takes_only_its_predecessors_data() {
        let manifest = replacing();
        let mut books = FreeSlabs::new(&manifest);
        assert_eq!(books.usable(Role::Data), [0, 1, 2, 3]);
        assert_eq!(candidates(&manifest, &books, 1, &[0, 1, 2, 3]), [4]);
        assert_eq!(candidates(&manifest, &books, 2, &[0, 1, 2]), [3]);
        // The successor has an area of this journal already, and drive 1 must be emptied all the
        // same.
        assert_eq!(candidates(&manifest, &books, 1, &[1, 2, 4]), [0, 3]);
        // Its row came from drive 1, which must take no other column of the row.
        assert_eq!(candidates(&manifest, &books, 2, &[0, 2, 4]), [3]);
        // As much as the successor has room for beside the content that is to move there.
        let free = books.free_slabs(1);
        assert_eq!(free + books.used_slabs(1), books.slabs(1));
        books.take(4, 0, 20);
        assert_eq!(books.free_slabs(1), free - 20);
    }

    #[test]
    fn replacements_end_with_either_of_their_drives() {
        let mut manifest = replacing();
        assert_eq!(manifest.end_replacements(), []);
        out(&mut manifest, 4);
        assert_eq!(manifest.end_replacements(), [(1, 4)]);
        assert!(manifest.drives.iter().all(|drive| drive.successor.is_none()));
        let mut manifest = replacing();
        out(&mut manifest, 1);
        assert_eq!(manifest.end_replacements(), []);
        assert_eq!(manifest.drive(1).unwrap().successor, Some(4), "what is missing is rebuilt there");
        manifest.volumes.clear();
        assert_eq!(manifest.end_replacements(), []);
        assert!(manifest.drive(1).is_none(), "no record names it any more");
        assert_eq!(manifest.check(), Ok(()));
    }
}
