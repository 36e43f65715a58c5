//! Drives that are not what they were when they were last seen: put back to what they held in an
//! earlier life, or the only ones that have what was being written when power went. Drawn from a
//! stream of their own ([`crate::Drawn`]).
//!
//! A drive that was put back counts as lost: whatever was written since, it does not have, and it
//! must not be taken for current. A copy that only one drive has counts or not, as the engine
//! decides when it opens the pool; but what it makes of it must stand without that drive from then
//! on.

use std::collections::BTreeSet;

use stripewise_drive::CrashDrive;

use super::World;
use super::copies::{KeptCopy, OnlyCopy};
use crate::subject::disk_label;

impl World {
    /// At the end of a life, when the drives have lost their caches: volumes that were written in
    /// it, and the drive at whose copy of something power went. Perhaps keeps what a drive holds.
    pub(crate) fn remember(&self, life: usize, changed: &BTreeSet<u32>, only_copy_on: Option<usize>) {
        let Some(random) = self.later() else { return };
        if let Some(copy) = &mut *self.copy.borrow_mut() {
            copy.changed.extend(changed);
        }
        if let Some(disk) = only_copy_on {
            self.only_copy.set(Some(OnlyCopy { disk, life }));
            self.cover(|coverage| coverage.cuts_at_a_copy += 1);
        }
        if self.copy.borrow().is_none() && random.borrow_mut().chance(self.bias.rollback.0) {
            let disks = self.disks.borrow();
            let disk = random.borrow_mut().below(disks.len() as u64) as usize;
            let image = disks[disk].crash.image_after_cut(&disk_label(disk), 0);
            *self.copy.borrow_mut() = Some(KeptCopy { disk, life, image, changed: BTreeSet::new() });
        }
    }

    /// Before a life: perhaps puts the drive back that a copy was kept of, when at least one life
    /// has passed since and all volumes can do without it.
    pub(crate) fn perhaps_roll_back(&self, life: usize) {
        let Some(random) = self.later() else { return };
        let is_time = |copy: &KeptCopy| copy.life + 1 < life;
        if !self.copy.borrow().as_ref().is_some_and(is_time)
            || !random.borrow_mut().chance(self.bias.rollback.1)
        {
            return;
        }
        let Some(copy) = self.copy.take() else { return };
        let one = BTreeSet::from([copy.disk]);
        let volumes = self.volumes.borrow();
        if !volumes.iter().all(|guarded| guarded.can_spare(&one)) {
            return;
        }
        volumes.iter().for_each(|guarded| guarded.harm(&one));
        let crash = CrashDrive::from_image(&disk_label(copy.disk), &copy.image);
        crash.set_tears_sectors(self.plan.tears);
        let disk = &mut self.disks.borrow_mut()[copy.disk];
        disk.crash = crash;
        disk.stale.extend(copy.changed);
        self.note(0, &format!("disk{} is as it was after life {}", copy.disk, copy.life));
        self.cover(|coverage| {
            coverage.drive_losses += 1;
            coverage.rolled_back_drives += 1;
        });
    }

    /// True if everything is to be there in the next life: then what a single drive has is seen,
    /// and may count.
    pub(crate) fn is_copy_to_be_seen(&self, life: usize) -> bool {
        self.only_copy.get().is_some_and(|only| only.life + 1 == life)
    }

    /// The drive that is to be missing after a life in which what only it had was seen.
    pub(crate) fn copy_to_be_lost(&self, life: usize) -> Option<usize> {
        let only = self.only_copy.get().filter(|only| only.life + 2 == life)?;
        self.only_copy.set(None);
        Some(only.disk)
    }
}
