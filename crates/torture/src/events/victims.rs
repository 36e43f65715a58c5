//! Chooses the drives that events affect, and removes and returns drives for several events. Never
//! removes more than the guarantees cover.

use std::collections::BTreeSet;
use std::rc::Rc;

use stripewise_drive::Drive;

use crate::life::{Life, Plugged};
use crate::subject::Refusal;

/// Maximum number of drives in a run.
const MAX_DISKS: usize = 14;
/// Maximum number of drives in a run with fast drives.
const MAX_DISKS_WITH_FAST: usize = 20;

impl Life {
    /// Logs the answer to an administrative request, which may be refused but must end.
    pub(crate) fn asked(&self, what: &str, answer: Option<Result<(), Refusal>>) {
        if let Some(answer) = answer {
            self.note(&format!("{what}: {answer:?}"));
        }
    }

    /// Tries to harm these disks. Returns true if the guarantees allow it; they count as lost then.
    pub(crate) fn try_harm(&self, disks: &BTreeSet<usize>) -> bool {
        let volumes = self.world.volumes.borrow();
        let online = self.plugged.borrow();
        let is_last = online.iter().all(|(disk, plugged)| plugged.is_troubled.get() || disks.contains(disk));
        if is_last || !volumes.iter().all(|guarded| guarded.can_spare(disks)) {
            return false;
        }
        volumes.iter().for_each(|guarded| guarded.harm(disks));
        true
    }

    /// Chooses a plugged disk without faults.
    pub(crate) fn any_disk(&self) -> Option<(usize, Rc<Plugged>)> {
        let plugged = self.plugged.borrow();
        let fine = plugged.iter().filter(|(_, plugged)| !plugged.is_troubled.get());
        let fine: Vec<(usize, Rc<Plugged>)> = fine.map(|(disk, plugged)| (*disk, plugged.clone())).collect();
        self.world.pick(&fine)
    }

    /// As [`Self::any_disk`]; the disk counts as harmed.
    pub(crate) fn any_victim(&self, why: &str) -> Option<(usize, Rc<Plugged>)> {
        let (disk, plugged) = self.any_disk()?;
        if !self.try_harm(&BTreeSet::from([disk])) {
            return None;
        }
        self.note(&format!("{why} disk{disk}"));
        Some((disk, plugged))
    }

    /// Counts the loss of a drive.
    pub(crate) fn count_loss(&self) {
        self.world.cover(|coverage| coverage.drive_losses += 1);
    }

    /// Unplugs a drive, which may return in a later life.
    pub(crate) fn pull_out(&self, disk: usize, plugged: &Plugged) {
        self.count_loss();
        plugged.is_troubled.set(true);
        plugged.faulty.unplug();
        self.world.disks.borrow_mut()[disk].is_away = true;
    }

    /// Holds back a drive's answers for `duration_ns`.
    pub(crate) fn stick_for(&self, plugged: Rc<Plugged>, duration_ns: u64) {
        plugged.is_troubled.set(true);
        plugged.faulty.stick();
        let context = self.context.clone();
        self.context.spawn(async move {
            context.sleep_ns(duration_ns).await;
            plugged.faulty.release();
            // The answers held back are still in transit for a moment.
            context.sleep_ns(100_000_000).await;
            plugged.is_troubled.set(false);
        });
    }

    /// Draws an offset on the disk, mostly one with data.
    pub(crate) fn draw_place(&self, plugged: &Plugged) -> u64 {
        let capacity = plugged.top.info().capacity_bytes;
        let reach = if self.world.chance(0.8) { capacity.min(6 << 20) } else { capacity };
        self.world.below(reach / 4096) * 4096
    }

    /// Plugs in a disk that was unplugged.
    pub(crate) fn brought_back(&self, disk: usize) -> Option<(usize, Rc<dyn Drive>)> {
        let known = self.plugged.borrow().get(&disk).cloned();
        let plugged = match known {
            // Its former object has ended: it is opened as another one.
            Some(plugged) if plugged.is_dead.get() => self.plug(disk),
            Some(plugged) if self.world.disks.borrow()[disk].is_away => {
                plugged.faulty.plug_in();
                plugged.is_troubled.set(false);
                plugged
            }
            // The drive is stuck or still in use.
            Some(plugged) if plugged.is_troubled.get() => return None,
            Some(plugged) => plugged,
            None => self.plug(disk),
        };
        self.world.disks.borrow_mut()[disk].is_away = false;
        Some((disk, plugged.top.clone()))
    }

    /// Plugs in a new disk.
    pub(crate) fn new_disk(&self) -> Option<(usize, Rc<dyn Drive>)> {
        let has_fast = !self.world.plan.fast_bytes.is_empty();
        if self.world.disks.borrow().len() >= if has_fast { MAX_DISKS_WITH_FAST } else { MAX_DISKS } {
            return None;
        }
        let plan = &self.world.plan;
        let capacity = plan.data_bytes.iter().chain(&plan.spare_bytes).copied().max()?;
        let disk = self.world.make_disk(capacity);
        Some((disk, self.plug(disk).top.clone()))
    }
}
