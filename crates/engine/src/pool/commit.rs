//! Commits: changes of the manifest, durable on every drive that takes part before they count.
//!
//! One at a time. A drive that cannot take the commit is excluded and the commit repeated without it, so that no drive
//! that misses one is ever taken for current. Whenever the set of drives that take part changes, a new branch begins. A
//! drive that joins is written first: until it has the commit, no other drive speaks of it.

use std::rc::Rc;

use futures_util::future::join_all;

use super::error::PoolError;
use super::format::{DriveRecord, Manifest, Role, SlotState};
use super::superblock::{MANIFEST_ROOM_BYTES, encode_manifest, write_superblock};
use super::{Inner, OpenMode};
use crate::array::Array;
use crate::member::Member;

/// Room kept for what is recorded when drives fail, so that a full manifest never stands in the way of that.
const RESERVE_BYTES: u64 = 160 << 10;

/// What a change of the manifest came to.
pub(super) enum Change<T> {
    /// To be written.
    Commit(T),
    /// Nothing changed.
    Nothing(T),
}

impl Inner {
    /// Changes the manifest. `first`: a drive that is written before all others. Once begun a commit runs to its end, even
    /// if whoever asked for it is dropped.
    pub(super) async fn commit<T: 'static>(
        &self,
        first: Option<u32>,
        change: impl FnOnce(&mut Manifest) -> T + 'static,
    ) -> Result<T, PoolError> {
        self.try_commit(first, |manifest| Ok(Change::Commit(change(manifest)))).await
    }

    /// As [`Self::commit`], for a change that may find itself impossible, or done already.
    pub(super) async fn try_commit<T: 'static>(
        &self,
        first: Option<u32>,
        change: impl FnOnce(&mut Manifest) -> Result<Change<T>, PoolError> + 'static,
    ) -> Result<T, PoolError> {
        self.check_readable()?;
        self.commit_regardless(first, change).await
    }

    /// Refuses changes while no volume can be read because drives are missing that were never at hand. Such a pool is most
    /// likely incomplete by mistake; left as it is, it is whole again when they come, wherever else they were looked at.
    pub(super) fn check_readable(&self) -> Result<(), PoolError> {
        let manifest = self.manifest.borrow();
        let is_missing = |number: u32| manifest.is_online(number) && self.open_drive(number).is_none();
        let missing = manifest.drives.iter().filter(|drive| is_missing(drive.number));
        let missing: Vec<String> = missing.map(|drive| format!("{} ({})", drive.path, drive.id)).collect();
        let is_away = |number: u32| self.open_drive(number).is_none();
        let is_useless =
            !manifest.volumes.is_empty() && !manifest.volumes.iter().any(|volume| volume.survives(is_away));
        if is_useless && !missing.is_empty() {
            return Err(PoolError::TooFewDrives { pool: manifest.name.clone(), missing });
        }
        Ok(())
    }

    /// As [`Self::try_commit`], even if no volume can be read.
    pub(super) async fn commit_regardless<T: 'static>(
        &self,
        first: Option<u32>,
        change: impl FnOnce(&mut Manifest) -> Result<Change<T>, PoolError> + 'static,
    ) -> Result<T, PoolError> {
        let inner = self.rc();
        self.context
            .spawn(async move {
                if inner.mode == OpenMode::ReadOnly {
                    return Err(PoolError::ReadOnly { pool: inner.name() });
                }
                let _alone = inner.committing.acquire(1).await;
                let mut next = inner.manifest.borrow().clone();
                inner.refresh(&mut next);
                match change(&mut next)? {
                    Change::Commit(result) => inner.write(next, first).await.map(|()| result),
                    Change::Nothing(result) => Ok(result),
                }
            })
            .await
    }

    /// For changes that add to the manifest: refuses them before there is no room left for emergencies.
    pub(super) fn check_room(manifest: &Manifest) -> Result<(), PoolError> {
        let needed_bytes = encode_manifest(manifest)?.len() as u64 + RESERVE_BYTES;
        if needed_bytes <= MANIFEST_ROOM_BYTES {
            return Ok(());
        }
        Err(PoolError::MetadataFull { needed_bytes, room_bytes: MANIFEST_ROOM_BYTES })
    }

    async fn write(&self, mut next: Manifest, first: Option<u32>) -> Result<(), PoolError> {
        let before = self.manifest.borrow().clone();
        let mut excluded: Vec<u32> = Vec::new();
        let mut why = String::from("none is at hand");
        loop {
            let out = self.fallen_out(&next);
            excluded.extend(out.iter().map(|(number, ..)| *number));
            next.exclude(&out);
            let targets = self.targets(&next);
            if targets.is_empty() {
                return Err(PoolError::NoDriveLeft { why });
            }
            next.generation = next.generation.max(before.generation) + 1;
            if standing(&next) != standing(&before) {
                next.fork(self.ids.borrow_mut().next());
            }
            let json = encode_manifest(&next)?;
            let (joining, others): (Vec<_>, Vec<_>) =
                targets.into_iter().partition(|(number, ..)| Some(*number) == first);
            let mut all_have_it = true;
            for group in [joining, others] {
                let writes = group.iter().map(|(_, id, member)| {
                    write_superblock(member, self.pool_id, *id, next.generation, &json)
                });
                for ((number, _, member), written) in group.iter().zip(join_all(writes).await) {
                    let Err(error) = written else { continue };
                    why = error.to_string();
                    if Some(*number) == first && before.drive(*number).is_none() {
                        // Nobody else knows of it yet: as if it had never been asked.
                        return Err(PoolError::Drive(error));
                    }
                    member.fail(&format!("its metadata could not be written: {error}"));
                    all_have_it = false;
                }
            }
            if all_have_it {
                break;
            }
        }
        *self.manifest.borrow_mut() = next;
        self.leave_out(&excluded);
        Ok(())
    }

    /// Drives that take part according to the manifest, but cannot any more.
    fn fallen_out(&self, manifest: &Manifest) -> Vec<(u32, String, bool)> {
        let drives = self.drives.borrow();
        let online = manifest.drives.iter().filter(|drive| drive.is_online());
        online
            .filter_map(|drive| match drives.get(&drive.number) {
                None => Some((drive.number, "it was not there".to_owned(), true)),
                Some(open) => open.member.failed().map(|why| (drive.number, why.to_string(), false)),
            })
            .collect()
    }

    fn targets(&self, manifest: &Manifest) -> Vec<(u32, super::Id, Rc<Member>)> {
        let drives = self.drives.borrow();
        let online = manifest.drives.iter().filter(|drive| drive.is_online());
        online
            .filter_map(|drive| Some((drive.number, drive.id, drives.get(&drive.number)?.member.clone())))
            .collect()
    }

    /// After a commit that excluded drives: arrays go on without them.
    fn leave_out(&self, excluded: &[u32]) {
        if excluded.is_empty() {
            return;
        }
        self.leave_out_excluded();
        for number in excluded {
            if let Some(drive) = self.open_drive(*number) {
                drive.member.fail("it was excluded");
                drive.member.release();
            }
        }
        self.after_exclusion();
    }

    /// Takes excluded drives out of every array that still has them.
    pub(super) fn leave_out_excluded(&self) {
        let manifest = self.manifest.borrow();
        for volume in &manifest.volumes {
            let Some(array) = self.array(volume.id) else { continue };
            for (index, slot) in volume.slots.iter().enumerate() {
                if manifest.is_online(slot.drive) || array.missing().contains(index) {
                    continue;
                }
                if slot.state == SlotState::Active {
                    // It cannot be spared: before anything is written without it, nothing is written any more.
                    array.protect();
                }
                array.mark_missing(index);
            }
        }
    }

    /// What arrays and members know better than the manifest: counts of errors, rebuilds that ended, lost blocks.
    pub(super) fn refresh(&self, manifest: &mut Manifest) {
        for (number, open) in self.drives.borrow().iter() {
            if let Some(drive) = manifest.drive_mut(*number) {
                drive.errors = open.errors();
            }
        }
        for (id, array) in self.arrays.borrow().iter() {
            let Some(volume) = manifest.volume_by_id_mut(*id) else { continue };
            let known = volume.lost.clone();
            volume.set_lost(&array.lost_blocks());
            if !manifest.lost_fits() {
                // Too many to remember: the rebuild that found them does not count as further than it did.
                manifest.volume_by_id_mut(*id).expect("just found").lost = known;
                continue;
            }
            let volume = manifest.volume_by_id_mut(*id).expect("just found");
            for (index, slot) in volume.slots.iter_mut().enumerate() {
                if matches!(slot.state, SlotState::Rebuilding { .. }) && is_rebuilt(array, index) {
                    slot.state = SlotState::Active;
                }
            }
        }
    }

    /// Whether a commit now would change nothing but its number.
    pub(super) fn is_up_to_date(&self) -> bool {
        let manifest = self.manifest.borrow();
        let mut next = manifest.clone();
        self.refresh(&mut next);
        next == *manifest
    }

    /// Has a drive excluded that failed under an array; told again of the same drive it does nothing.
    pub(super) async fn exclude_member(&self, member: &Rc<Member>, reason: &str) -> Result<(), PoolError> {
        let number = {
            let drives = self.drives.borrow();
            drives.iter().find(|(_, drive)| Rc::ptr_eq(&drive.member, member)).map(|(number, _)| *number)
        };
        // A drive that belongs to no record (any more) is as excluded as can be.
        let Some(number) = number else { return Ok(()) };
        member.fail(reason);
        if self.mode == OpenMode::ReadOnly {
            // Nothing is written, so nothing can be lacking on it; this process goes on without it.
            return Ok(());
        }
        if !self.manifest.borrow().is_online(number) {
            return Ok(());
        }
        self.try_commit(None, move |manifest| {
            // Whoever came before may have done it. What is to be excluded is found when it is written.
            Ok(if manifest.is_online(number) { Change::Commit(()) } else { Change::Nothing(()) })
        })
        .await
    }
}

fn is_rebuilt(array: &Array, slot: usize) -> bool {
    array.rebuild_progress(slot).is_none() && !array.missing().contains(slot)
}

/// Who takes part, and as what: when this changes, a new branch begins.
fn standing(manifest: &Manifest) -> Vec<(u32, bool, Role)> {
    let of = |drive: &DriveRecord| (drive.number, drive.is_online(), drive.role);
    manifest.drives.iter().map(of).collect()
}
