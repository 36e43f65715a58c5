//! Drives that were away and are back.
//!
//! Such a drive is written before any other drive counts on it; what it held then is brought up to
//! date where the drive itself recorded that it had it, and filled again where it had not, or where
//! the drive had failed. What it was when it was seen last counts for nothing: before it takes part
//! again it is read once more. Faults expected: another drive in its place, older copies, drives
//! that fail at any of it.

use std::rc::Rc;

use stripewise_drive::Drive;

use crate::create::refuse_taken;
use crate::error::PoolError;
use crate::manifest::drive_record::{DriveRecord, ExclusionKind, Standing, shortened};
use crate::manifest::format::Manifest;
use crate::manifest::ids::{DriveId, PoolId};
use crate::manifest::volume_record::PartRecord;
use crate::open::is_cut;
use crate::open_drives::OpenDrive;
use crate::rolled_back::SHARED;
use crate::sparing::allocation::put;
use crate::superblock::commit::Change;
use crate::superblock::slots::{self, Content, Superblock};
use crate::{Inner, Pool};
use stripewise_array::Member;
use stripewise_array::rows::{SlotPlace, SlotState};

impl Pool {
    /// Brings a drive online that is out: taken offline, missing, or failed. `drive` is its current
    /// device; `None` if it was present when the pool was opened. Only data written during its
    /// absence is copied, unless it had failed.
    pub async fn online(&self, id: DriveId, drive: Option<Rc<dyn Drive>>) -> Result<(), PoolError> {
        let inner = &self.0;
        let _alone = inner.administer().await?;
        let number = inner.manifest.borrow().number_of(id)?;
        let record = inner.manifest.borrow().drive(number).cloned().expect("just found");
        if record.is_online() && inner.working_member(number).is_some() {
            return Err(PoolError::DriveStanding {
                drive: record.path,
                what: "is online already".to_owned(),
            });
        }
        if record.replaced {
            let what = "was replaced by another drive; `pool add` takes it in as a new one".to_owned();
            return Err(PoolError::DriveStanding { drive: record.path, what });
        }
        match drive {
            Some(drive) => inner.take_back(number, &record, drive).await?,
            None if inner.drives.is_back(number) => {}
            None => {
                let what = "is not there".to_owned();
                return Err(PoolError::DriveStanding { drive: record.path, what });
            }
        }
        inner.rejoin(number).await?;
        inner.kick_jobs();
        Ok(())
    }
}

impl Manifest {
    /// Manifest on a drive, if it is the drive of the record.
    fn own_words(
        &self,
        ours: PoolId,
        record: &DriveRecord,
        label: &str,
        superblock: Superblock,
    ) -> Result<Manifest, PoolError> {
        let Superblock { pool_id, drive_id, manifest, also, .. } = superblock;
        if pool_id != ours {
            let (drive, pool_name) = (label.to_owned(), manifest.name);
            return Err(PoolError::DriveOfOtherPool { drive, pool_name, pool_id });
        }
        if drive_id != record.id {
            let what = format!("is another drive of this pool ({drive_id})");
            return Err(PoolError::DriveStanding { drive: label.to_owned(), what });
        }
        if self.is_shared(&also) {
            return Err(PoolError::DriveStanding { drive: label.to_owned(), what: SHARED.to_owned() });
        }
        Ok(manifest)
    }

    /// The part of a drive's own manifest that counts. A manifest that continued without this pool,
    /// or is not of its past, says nothing about it. Neither does an older copy, which cannot
    /// replace a drive that alone has some data either.
    fn believed(&self, record: &DriveRecord, theirs: Manifest) -> Result<Manifest, PoolError> {
        let is_rolled_back = self.is_rolled_back(record, &theirs);
        if is_rolled_back && self.is_needed(record.number) {
            let drives = vec![format!("{} (at generation {})", record.path, theirs.generation)];
            return Err(PoolError::RolledBack { drives, generation: self.generation });
        }
        Ok(match self.descends_from(&theirs) && !is_rolled_back {
            true => theirs,
            false => Manifest { volumes: Vec::new(), ..theirs },
        })
    }
}

impl Inner {
    /// Puts a queue in front of a drive that was out, after a look at what it says.
    async fn take_back(
        &self,
        number: u32,
        record: &DriveRecord,
        drive: Rc<dyn Drive>,
    ) -> Result<(), PoolError> {
        let info = drive.info().clone();
        let label = info.label.to_string();
        let (superblock, slot) =
            match slots::read_in_time(&self.context, &self.options.member, &*drive).await? {
                Content::Valid { superblock, slot, .. } => (superblock, slot),
                content => {
                    if content.identity().is_none_or(|(pool_id, _)| pool_id != self.pool_id) {
                        refuse_taken(&label, content)?;
                    }
                    let what = "holds nothing of the pool that can be read; `pool replace` puts it in the \
                                place of the one that is out";
                    return Err(PoolError::DriveStanding { drive: label, what: what.to_owned() });
                }
            };
        self.check_threads(&drive)?;
        let sessions = superblock.sessions.clone();
        let manifest = self.manifest.borrow().own_words(self.pool_id, record, &label, *superblock)?;
        if is_cut(&drive, Some(record)) {
            let (capacity_bytes, needed_bytes) = (info.capacity_bytes, record.capacity_bytes);
            return Err(PoolError::DriveTooSmall { drive: label, capacity_bytes, needed_bytes });
        }
        // The next commit is to be newer than what the drive has, wherever it got that.
        self.commits.note_attempted(manifest.generation);
        let behind = self.manifest.borrow().believed(record, manifest)?;
        let member = Member::new(&self.context, drive, self.options.member());
        let (errors_before, behind) = (record.errors, Some(Rc::new(behind)));
        let open = OpenDrive { member, errors_before, behind };
        self.commits.writer.found(number, slot);
        self.commits.writer.knows(number, sessions);
        let before = self.drives.insert(number, open);
        if let Some(before) = before {
            before.member.fail("it was reopened");
            before.member.stop();
        }
        self.set_background_share();
        Ok(())
    }

    /// Reads the manifest again from a drive that is present and out: since it was opened it may
    /// have been overwritten, or have become another drive of the pool.
    async fn read_again(&self, record: &DriveRecord, member: &Member) -> Result<Manifest, PoolError> {
        let label = member.label().to_string();
        let Some(drive) = member.drive() else {
            return Err(PoolError::DriveStanding { drive: label, what: "is not there".to_owned() });
        };
        match slots::read_in_time(&self.context, &self.options.member, &*drive).await? {
            Content::Valid { superblock, slot, .. } => {
                let manifest = self.manifest.borrow();
                self.commits.writer.knows(record.number, superblock.sessions.clone());
                let theirs = manifest.own_words(self.pool_id, record, &label, *superblock)?;
                self.commits.writer.found(record.number, slot);
                manifest.believed(record, theirs)
            }
            _ => {
                let what = "holds nothing of this pool any more".to_owned();
                Err(PoolError::DriveStanding { drive: label, what })
            }
        }
    }

    /// Lets a drive that is at hand take part again, and has what it lacks filled. One that takes
    /// part already only gets what it lacks filled.
    pub(crate) async fn rejoin(&self, number: u32) -> Result<(), PoolError> {
        let Some(open) = self.drives.get(number) else { return Ok(()) };
        let record = self.manifest.borrow().drive(number).cloned();
        let Some(record) = record else { return Ok(()) };
        let path = open.member.label().to_string();
        let (mut behind, new_path) = (open.behind.clone(), path.clone());
        if !record.is_online() {
            match self.read_again(&record, &open.member).await {
                Ok(theirs) => behind = Some(Rc::new(theirs)),
                Err(error) => {
                    // One that cannot be read now may be read later.
                    if !matches!(error, PoolError::Drive(_)) {
                        self.drives.let_go(number);
                    }
                    return Err(error);
                }
            }
        }
        let committed = self
            .commit_regardless(Some(number), move |manifest| {
                let Some(drive) = manifest.drive_mut(number) else { return Ok(Change::Nothing(())) };
                // The contents of a drive with errors are not trusted.
                let had_failed = drive.exclusion() == Some(ExclusionKind::Failed);
                drive.standing = Standing::Online;
                drive.path = shortened(&new_path);
                let known = behind.filter(|_| !had_failed);
                bring_back(manifest, number, known.as_deref());
                Ok(Change::Commit(()))
            })
            .await;
        self.drives.note_rejoined(number);
        committed?;
        if self.working_member(number).is_none() {
            let what = "failed when it was to take part again".to_owned();
            return Err(PoolError::DriveStanding { drive: path, what });
        }
        self.drives.note_of_use(number);
        self.set_background_share();
        self.jobs.forget_stalls();
        self.open_volumes().await;
        self.reallocate_maps().await
    }
}

/// Columns that are missing on a drive which is back: to be brought up to date where the drive
/// `known` to have had them, else to be filled.
fn bring_back(manifest: &mut Manifest, number: u32, known: Option<&Manifest>) {
    let online: Vec<u32> =
        manifest.drives.iter().filter(|drive| drive.is_online()).map(|drive| drive.number).collect();
    let is_out = |number: u32| !online.contains(&number);
    let next = manifest.generation + 1;
    for volume in manifest.volumes.iter_mut().filter(|volume| volume.survives(is_out)) {
        for part in &mut volume.parts {
            let before = known.and_then(|known| known.parts().find(|before| before.id == part.id));
            if part.log.is_some() {
                bring_back_column(part, number, before, next);
                continue;
            }
            let mut changes = Vec::new();
            for run in part.rows.runs() {
                for column in 0..run.places.len() {
                    let place = run.places[column];
                    if place.drive != number || place.state != SlotState::Missing {
                        continue;
                    }
                    // Row by row: what it had lies in other runs than what it has.
                    for row in run.first_row..run.end_row() {
                        let place = run.place(row, column);
                        let had =
                            before.and_then(|before| before.rows.place(row, column)).is_some_and(|had| {
                                (had.drive, had.slab) == (place.drive, place.slab)
                                    && matches!(had.state, SlotState::Active | SlotState::CatchingUp)
                            });
                        let state = if had { SlotState::CatchingUp } else { SlotState::Rebuilding };
                        match changes.last_mut() {
                            Some((first, rows, last_column, last_state))
                                if *last_column == column
                                    && *last_state == state
                                    && *first + *rows == row =>
                            {
                                *rows += 1;
                            }
                            _ => changes.push((row, 1, column, state)),
                        }
                    }
                }
            }
            for (first_row, rows, column, state) in changes {
                let end = first_row + rows;
                let mut row = first_row;
                while row < end {
                    let Some(run) = part.rows.run(row) else { break };
                    let count = end.min(run.end_row()) - row;
                    let place = run.place(row, column);
                    put(&mut part.rows, row, count, column, SlotPlace { state, ..place });
                    row += count;
                }
            }
        }
    }
}

/// A log's column that is missing on a drive which is back: to be filled, from where its last
/// rebuild ended if the drive has what it had then.
fn bring_back_column(part: &mut PartRecord, number: u32, before: Option<&PartRecord>, next: u64) {
    let is_it = |place: &SlotPlace| place.drive == number && place.state == SlotState::Missing;
    for column in 0..part.shape.width {
        let Some(place) = part.rows.place(0, column).filter(is_it) else { continue };
        let had = before.is_some_and(|before| {
            let had = before.rows.place(0, column);
            had.is_some_and(|had| (had.drive, had.slab) == (place.drive, place.slab))
                && before.log.map(|log| log.filled_since) == part.log.map(|log| log.filled_since)
        });
        part.set_column(column, SlotState::Rebuilding);
        if !had {
            part.log.iter_mut().for_each(|log| log.filled_since = next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::drive_record::Exclusion;
    use crate::sparing::allocation::tests::pool;

    #[test]
    fn returning_columns_catch_up_or_are_rebuilt() {
        let (mut manifest, _) = pool(&[100, 100, 100], "raid5", 3, 60);
        let part = &mut manifest.volumes[0].parts[0];
        let place = part.rows.place(20, 1).unwrap();
        let filling = SlotPlace { state: SlotState::Rebuilding, ..place };
        put(&mut part.rows, 20, 5, 1, filling);
        let number = place.drive;
        let its_own = manifest.clone();
        manifest.exclude(&[Exclusion { drive: number, reason: String::new(), kind: ExclusionKind::Missing }]);
        let out = manifest.clone();
        manifest.drive_mut(number).unwrap().standing = Standing::Online;
        bring_back(&mut manifest, number, Some(&its_own));
        assert_eq!(manifest.check(), Ok(()));
        let state = |manifest: &Manifest, row| manifest.volumes[0].parts[0].rows.place(row, 1).unwrap().state;
        for row in 0..60 {
            assert_eq!(state(&out, row), SlotState::Missing);
            let filled = (20..25).contains(&row);
            let expected = if filled { SlotState::Rebuilding } else { SlotState::CatchingUp };
            assert_eq!(state(&manifest, row), expected, "row {row}");
        }
        let mut manifest = out;
        manifest.drive_mut(number).unwrap().standing = Standing::Online;
        bring_back(&mut manifest, number, None);
        assert!((0..60).all(|row| state(&manifest, row) == SlotState::Rebuilding));
    }
}
