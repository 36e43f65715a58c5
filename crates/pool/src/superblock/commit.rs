//! Commits: changes of the manifest, durable on every participating drive before they count.
//!
//! One at a time. A drive that cannot take the commit is excluded and the commit repeated without
//! it, so that no drive that misses one is ever taken for current. A membership change starts a
//! tentative branch, written to every participating drive. A second write confirms on each that all
//! have it; only then does the branch count. So a drive that has only the tentative branch never
//! worked on it, and is not taken for half of a pool when it returns to one that went on without
//! it. A drive that joins is written first: until it has the commit, no other drive names it. When
//! a commit counts, the arrays are notified of new drives, changed rows and excluded drives.

use std::collections::BTreeSet;

use stripewise_drive::DriveErrorKind;

use crate::Inner;
use crate::error::PoolError;
use crate::manifest::drive_record::{DriveRecord, Role};
use crate::manifest::events::EventKind;
use crate::manifest::format::Manifest;
use crate::manifest::taken_back::take_back;
use crate::manifest::volume_record::{MetaPlaceRecord, PartRecord, PlaceState};
use crate::superblock::writer::TooLarge;
use stripewise_array::MemberLabel;
use stripewise_array::mutation::{self, Mutation};
use stripewise_array::{AreaPlace, Array, ArrayHandle};

/// Number of events kept if the record has no room for more.
const EVENTS_AT_LEAST: usize = 32;

/// Outcome of a change of the manifest.
pub(crate) enum Change<T> {
    /// To be written.
    Commit(T),
    /// Nothing changed.
    Nothing(T),
}

impl From<TooLarge> for PoolError {
    fn from(too_large: TooLarge) -> Self {
        let TooLarge { needed_bytes, room_bytes } = too_large;
        Self::MetadataFull { needed_bytes, room_bytes }
    }
}

impl Inner {
    /// Changes the manifest. `first`: a drive that is written before all others. Once begun a
    /// commit runs to its end, even if the caller is dropped.
    pub(crate) async fn commit<T: 'static>(
        &self,
        first: Option<u32>,
        change: impl FnOnce(&mut Manifest) -> T + 'static,
    ) -> Result<T, PoolError> {
        self.try_commit(first, |manifest| Ok(Change::Commit(change(manifest)))).await
    }

    /// As [`Self::commit`], for a change that may find itself impossible, or done already.
    pub(crate) async fn try_commit<T: 'static>(
        &self,
        first: Option<u32>,
        change: impl FnOnce(&mut Manifest) -> Result<Change<T>, PoolError> + 'static,
    ) -> Result<T, PoolError> {
        self.drives.check_readable(&self.manifest.borrow())?;
        self.commit_regardless(first, change).await
    }

    /// As [`Self::try_commit`], even if no volume can be read.
    pub(crate) async fn commit_regardless<T: 'static>(
        &self,
        first: Option<u32>,
        change: impl FnOnce(&mut Manifest) -> Result<Change<T>, PoolError> + 'static,
    ) -> Result<T, PoolError> {
        let inner = self.rc();
        self.context
            .spawn(async move {
                if inner.lifecycle.is_read_only() {
                    return Err(PoolError::ReadOnly { pool: inner.name() });
                }
                let _alone = inner.commits.turn().await;
                let mut next = inner.manifest.borrow().clone();
                inner.refresh(&mut next);
                match change(&mut next)? {
                    Change::Commit(result) => inner.write(next, first).await.map(|()| result),
                    Change::Nothing(result) => Ok(result),
                }
            })
            .await
    }

    async fn write(&self, mut next: Manifest, first: Option<u32>) -> Result<(), PoolError> {
        self.session.before_commit().await?;
        let before = self.manifest.borrow().clone();
        let noted = self.news.unrecorded();
        noted.iter().for_each(|event| next.events.push(event.time_unix_ms, event.kind, &event.text));
        note_comings_and_goings(&before, &mut next, self.news.unix_ms());
        next.forget_replaced();
        next.end_replacements_aloud(&before, &self.news);
        next.events.sort_since(before.events.next_number());
        self.stamp_host(&mut next, false);
        let mut why = String::from("none is at hand");
        let mut excluded: BTreeSet<u32> = BTreeSet::new();
        // Drives that fall out in one commit do so together, whatever round each is met in: a
        // volume that cannot do without all of them keeps what it has on each.
        let (volumes, mut all_out) = (next.volumes.clone(), Vec::new());
        // The state that the next step starts from, and if every participating drive has it.
        let (mut base, mut is_on_all) = (before.clone(), false);
        let mut was_full = false;
        let mut proven = self.commits.proven();
        loop {
            let out = self.drives.fallen_out(&next);
            for exclusion in &out {
                excluded.insert(exclusion.drive);
                let path = next.drive(exclusion.drive).map_or("a drive", |drive| &drive.path);
                let text = format!("{path} is out of service: {}", exclusion.reason);
                next.events.push(self.news.unix_ms(), EventKind::Drive, &text);
            }
            if next.drives.iter().any(|drive| !drive.is_online()) || !out.is_empty() {
                if !out.is_empty() {
                    next.volumes.clone_from(&volumes);
                    all_out.extend(out.iter().cloned());
                    take_back(&before, &mut next, &all_out);
                }
                next.exclude(&out);
                next.end_replacements_aloud(&before, &self.news);
            }
            note_what_they_had(&base, &mut next, proven);
            self.drives.assert_distinct(&next);
            next.check_changed_rows(&before).map_err(|what| PoolError::Senseless { what })?;
            let mut targets = self.drives.targets(&next);
            if mutation::is_chosen(Mutation::CommitOnOneDrive) {
                targets.truncate(1);
            }
            if targets.is_empty() {
                return Err(PoolError::NoDriveLeft { why });
            }
            // A number that was written anywhere is never used for another state.
            next.generation = self.commits.begin_attempt(next.generation);
            next.proven = proven;
            // A failed attempt is no part of the history: a new branch begins at the end of the
            // last state that all drives had.
            next.branches.clone_from(&base.branches);
            next.old_branches.clone_from(&base.old_branches);
            if standing(&next) != standing(&base) {
                next.fork_tentatively(self.ids.borrow_mut().next(), base.generation + 1);
                next.keep_branches_of_gone(&base, proven);
            } else if is_on_all {
                next.confirm();
            }
            let mut written = self.commits.writer.commit(&next, first, &targets).await;
            if written.is_err() && next.events.keep_newest(EVENTS_AT_LEAST) {
                // The record itself matters more than old events.
                written = self.commits.writer.commit(&next, first, &targets).await;
            }
            let written = written?;
            let (mut all_have_it, mut full) = (true, None);
            for (number, result) in written {
                let Err(error) = result else { continue };
                why = error.to_string();
                if Some(number) == first && base.drive(number).is_none() {
                    // No other drive knows of it yet: as if it had never been requested.
                    return Err(PoolError::Drive(error));
                }
                if error.kind == DriveErrorKind::NoSpace {
                    (full, all_have_it) = (Some(error), false);
                    continue;
                }
                if let Some(drive) = self.drives.get(number) {
                    drive.member.fail(&format!("its metadata could not be written: {error}"));
                }
                all_have_it = false;
            }
            if let Some(error) = full {
                // A full file system is no reason to do without a drive. The next attempt is a
                // checkpoint, in the other slot, for which there is space as a rule: it was written
                // before.
                if std::mem::replace(&mut was_full, true) {
                    self.news.note_full(&error.drive);
                    return Err(PoolError::FileSystemFull { drive: error.drive.to_string() });
                }
                continue;
            }
            if all_have_it {
                proven = next.generation;
                // A drive that fell out since this commit was begun takes nothing with it that need
                // not be there.
                let is_final = || !take_back(&before, &mut next.clone(), &self.drives.fallen_out(&next));
                if !next.is_tentative() && is_final() {
                    break;
                }
                (base, is_on_all) = (next.clone(), true);
            }
        }
        self.commits.prove(proven);
        *self.manifest.borrow_mut() = next.clone();
        self.note_in_session(&next);
        self.news.forget_recorded(noted.len());
        let gone = |drive: &&DriveRecord| drive.is_online() && !next.is_online(drive.number);
        excluded.extend(before.drives.iter().filter(gone).map(|drive| drive.number));
        self.after_commit(&before, &next, &excluded);
        Ok(())
    }

    /// A commit counts: everything in memory follows it.
    fn after_commit(&self, before: &Manifest, next: &Manifest, excluded: &BTreeSet<u32>) {
        self.space.borrow_mut().refresh(next);
        let came = self.drives.named_members(next);
        let (ended, ended_logs) = (self.volumes.end_all_but(next), self.volumes.end_logs_but(next));
        for part in next.parts() {
            let Some(array) = self.volumes.array(part.id) else { continue };
            let old = before.parts().find(|old| old.id == part.id);
            array.visit(|array| {
                for member in came.iter().filter(|member| array.member(member.number).is_none()) {
                    array.join_member(member);
                }
                old.iter().for_each(|old| tell_changes(array, old, part));
                excluded.iter().for_each(|&number| leave_out(array, part, number));
            });
        }
        for part in next.parts() {
            let log = self.volumes.log(part.id);
            log.iter().for_each(|log| self.tell_log(log, part, excluded.iter().copied()));
        }
        self.reclaim(before, next, ended, ended_logs);
        for number in excluded {
            if let Some(drive) = self.drives.get(*number) {
                drive.member.fail("it was excluded");
                drive.member.release();
            }
        }
        self.note_space();
        self.note_fast_drives();
        if next.lost_bytes() < before.lost_bytes() {
            // Rows may have waited for room in the record.
            self.jobs.rebuilding.forget_stalls();
            self.kick_jobs();
        }
        if !excluded.is_empty() {
            // Spare allocation may have work.
            self.jobs.forget_stalls();
            self.kick_jobs();
        }
    }

    /// Excludes a drive that failed under an array; repeated calls for the same drive do nothing.
    pub(crate) async fn exclude_member(&self, drive: &MemberLabel, reason: &str) -> Result<(), PoolError> {
        // A drive that belongs to no record (any more) is as excluded as can be.
        let Some((number, member)) = self.drives.labelled(drive) else { return Ok(()) };
        member.fail(reason);
        if self.lifecycle.is_read_only() {
            // Nothing is written, so nothing can be lacking on it; this process goes on without it.
            return Ok(());
        }
        if !self.manifest.borrow().is_online(number) {
            return Ok(());
        }
        let inner = self.rc();
        let recorded = async move {
            let change = inner.try_commit(None, move |manifest| {
                // A caller that came before may have done it. What is to be excluded is found when
                // it is written.
                Ok(if manifest.is_online(number) { Change::Commit(()) } else { Change::Nothing(()) })
            });
            change.await
        };
        if mutation::is_chosen(Mutation::AcknowledgeBeforeExclusion) {
            self.context.spawn(recorded);
            return Ok(());
        }
        recorded.await
    }
}

/// Drives whose standing the change itself alters.
fn note_comings_and_goings(before: &Manifest, next: &mut Manifest, now_unix_ms: u64) {
    let mut texts = Vec::new();
    for drive in &next.drives {
        let Some(old) = before.drive(drive.number) else { continue };
        match (old.is_online(), drive.is_online()) {
            (true, false) => texts.push(format!("{} was taken out of service", drive.path)),
            (false, true) => texts.push(format!("{} is back", drive.path)),
            _ => {}
        }
    }
    for text in texts {
        next.events.push(now_unix_ms, EventKind::Drive, &text);
    }
}

/// For an array that was made while drives may have been excluded: takes those out of it.
pub(crate) fn leave_out_excluded(manifest: &Manifest, array: &ArrayHandle) {
    let Some(part) = manifest.parts().find(|part| part.id.0 == array.spec().id) else { return };
    array.visit(|array| {
        for drive in manifest.drives.iter().filter(|drive| !drive.is_online()) {
            if array.member(drive.number).is_some() {
                leave_out(array, part, drive.number);
            }
        }
    });
}

/// Records the last commit of each excluded drive, to distinguish the drive from an older copy of
/// it. Those that participate in `base` have all commits up to `proven`.
fn note_what_they_had(base: &Manifest, next: &mut Manifest, proven: u64) {
    for drive in &mut next.drives {
        drive.had = match base.drive(drive.number) {
            _ if drive.is_online() => None,
            Some(before) if !before.is_online() => before.had,
            Some(_) => (proven > 0).then_some(proven),
            None => None,
        };
    }
}

/// Notifies an array of changes to its record.
fn tell_changes(array: &Array, old: &PartRecord, new: &PartRecord) {
    if old.rows != new.rows {
        array.set_rows(new.rows.clone());
    }
    let is_active = |part: &PartRecord, place: &MetaPlaceRecord| {
        let is_it = |other: &&MetaPlaceRecord| (other.drive, other.slab) == (place.drive, place.slab);
        part.meta.places.iter().find(is_it).is_some_and(|other| other.state == PlaceState::Active)
    };
    let left = old.meta.places.iter().filter(|place| is_active(old, place) && !is_active(new, place));
    let left: Vec<AreaPlace> = left.map(|place| map_place(old, place)).collect();
    // A volume that cannot do without them keeps them, so there is always one that stays.
    array.remove_map_places(&left);
}

/// Takes a drive out of an array.
fn leave_out(array: &Array, part: &PartRecord, number: u32) {
    if part.needs(number) {
        // It cannot be spared: before anything is written without it, nothing is written any more.
        array.protect();
    }
    array.drive_gone(number);
}

/// A place of a part's map, as arrays know it.
pub(crate) fn map_place(part: &PartRecord, place: &MetaPlaceRecord) -> AreaPlace {
    AreaPlace { drive: place.drive, slab: place.slab, slabs: part.meta.slabs }
}

/// Participating drives and their roles: when this changes, a new branch begins.
fn standing(manifest: &Manifest) -> Vec<(u32, bool, Role)> {
    let of = |drive: &DriveRecord| (drive.number, drive.is_online(), drive.role);
    manifest.drives.iter().map(of).collect()
}
