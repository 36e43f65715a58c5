//! Emptying of drives that retire, and of working drives that are being replaced
//! (`membership/replacement.rs`). Columns migrate one by one to drives with room, or to the
//! successor, while clients use them and without reducing redundancy; copies of maps and areas of
//! journals move as well. Where all drives that could take a column are full, other columns move
//! out of the way first (`space/evacuation.rs`). Then the drive is removed.
//!
//! A batch of migrations is made, then recorded by one commit; until then both places are written.
//! Migrations interrupted by a crash are repeated. Memory: as for a rebuild. Faults expected: the
//! new place fails (another is found), the retiring drive fails (its columns are rebuilt instead),
//! there is no room any more (reported, and retried when something changes).

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::Inner;
use crate::error::PoolError;
use crate::jobs::column_migration::{Migrator, Step};
use crate::jobs::{Parts, Progress, SECOND_NS, watched};
use crate::manifest::drive_record::DriveRecord;
use crate::manifest::format::Manifest;
use crate::manifest::ids::Id;
use crate::manifest::volume_record::MetaPlaceRecord;
use crate::membership::replacement::written_on;
use crate::space::evacuation::{Link, first_to_move};
use crate::space::slabs::{FreeSlabs, Replacement};
use crate::sparing::allocation::{candidates, stretches};
use stripewise_array::LocalFuture;
use stripewise_array::rows::{SlotPlace, SlotState};

impl Inner {
    /// Moves some content off the first drive that is to be emptied. True if anything was done.
    pub(crate) async fn drain(&self) -> bool {
        for number in self.retiring() {
            match self.drain_some(number).await {
                Ok(true) => return true,
                Ok(false) => {}
                Err(why) => {
                    self.jobs.rebuilding.stall(Some((drain_task(number), None)), why);
                }
            }
        }
        false
    }

    fn retiring(&self) -> Vec<u32> {
        let manifest = self.manifest.borrow();
        let is_due = |drive: &&DriveRecord| {
            drive.is_leaving()
                && self.working_member(drive.number).is_some()
                && !self.jobs.rebuilding.is_stalled(Some((drain_task(drive.number), None)))
        };
        manifest.drives.iter().filter(is_due).map(|drive| drive.number).collect()
    }

    async fn drain_some(&self, number: u32) -> Result<bool, String> {
        let _alone = self.lifecycle.turn().await;
        if self.lifecycle.is_closed() {
            return Ok(false);
        }
        // Maps and journals of all leaving drives go first, before rows take the consecutive slabs
        // that these need.
        let is_retiring =
            |manifest: &Manifest, drive: u32| manifest.drive(drive).is_some_and(DriveRecord::is_leaving);
        let off = |manifest: &Manifest, place: &MetaPlaceRecord| {
            is_retiring(manifest, place.drive).then_some(false)
        };
        let failed = |error: PoolError| {
            format!("{} cannot be emptied: {error}", self.manifest.borrow().path_of(number))
        };
        self.renew_maps(off).await.map_err(failed)?;
        self.renew_journals(|manifest, place| is_retiring(manifest, place.drive)).await.map_err(failed)?;
        if !self.manifest.borrow().named_drives().contains(&number) {
            return self.release_drive(number).await.map_err(failed);
        }
        let steps = self.next_steps(number);
        if steps.is_empty() {
            let (manifest, planner) = (self.manifest.borrow(), self.spare_planner());
            let room = planner.check_evacuation(&manifest, &self.space.borrow(), number);
            room.map_err(|error| error.to_string())?;
            let path = manifest.path_of(number);
            return Err(format!(
                "{path} cannot be emptied now: its contents are not current, or the volume is read-only"
            ));
        }
        let taken = self.take_steps(number, steps).await;
        taken
            .map(|()| true)
            .map_err(|why| format!("{} cannot be emptied: {why}", self.manifest.borrow().path_of(number)))
    }

    /// Plans a batch of steps that empties a drive, or makes room for its content, and takes their
    /// slabs from the free space.
    fn next_steps(&self, number: u32) -> Vec<Step> {
        let (manifest, rebuildable) = (self.manifest.borrow(), self.movable());
        let most = (self.tuning().drain_batch_bytes / manifest.slab_bytes).clamp(1, 512);
        let space = &mut self.space.borrow_mut();
        let steps = plan_steps(&manifest, space, &rebuildable, (number, most));
        if steps.is_empty() {
            return plan_making_room(&manifest, space, &rebuildable, (number, most));
        }
        steps
    }

    async fn take_steps(&self, number: u32, steps: Vec<Step>) -> Result<(), String> {
        let successor = self.manifest.borrow().drive(number).and_then(|drive| drive.successor);
        if let Some(successor) = successor {
            self.space.borrow_mut().set_arriving(successor, steps.len() as u64);
        }
        let parts = self.note_drain(number);
        let lane = &self.jobs.rebuilding;
        self.jobs.begin(lane, parts.clone());
        let ids: BTreeSet<Id> = steps.iter().map(|step| step.part).collect();
        let workers = self.rows_at_once(ids.into_iter());
        // A batch stops early for a waiting change of drives or volumes.
        let rests =
            || self.lifecycle.is_closed() || self.jobs.look_again.get() || self.lifecycle.is_turn_wanted();
        let pace = |_| -> LocalFuture<'_, bool> { Box::pin(std::future::ready(true)) };
        let migrator = Migrator::of(self);
        let taking = migrator.take_batch(steps, workers, &parts, &rests, &pace);
        let nothing = || std::future::ready(Ok(()));
        let batch = watched(&self.context, &parts, taking, SECOND_NS, nothing).await;
        self.jobs.pause(lane);
        let (count, recorded) = (batch.done.len(), self.record_steps(batch.done).await);
        if let Some(successor) = successor {
            self.space.borrow_mut().set_arriving(successor, 0);
        }
        self.freed.until_reclaimed().await;
        let is_left = self.manifest.borrow().named_drives().contains(&number);
        if !is_left || self.lifecycle.is_closed() {
            self.jobs.end(lane);
        }
        recorded.map_err(|error| error.to_string())?;
        match batch.failure {
            // Failed drives were excluded, and the job considers the new state.
            Some((_, why)) if count == 0 && !self.jobs.look_again.get() => Err(why),
            _ => Ok(()),
        }
    }

    /// Updates the progress of the drain for the status.
    fn note_drain(&self, number: u32) -> Parts {
        let manifest = self.manifest.borrow();
        let mut current = self.jobs.rebuilding.current.borrow_mut();
        for part in manifest.parts() {
            let Some(array) = self.volumes.array(part.id) else { continue };
            let bytes = array.visit(|array| written_on(array, part, number));
            let successor = manifest.drive(number).and_then(|drive| drive.successor);
            let progress = current.entry(part.id).or_insert_with(|| {
                // Counts what moved to the successor before the pool was opened.
                let progress = Progress::default();
                let moved_to = |successor| array.visit(|array| written_on(array, part, successor));
                let done = successor.map_or(0, moved_to);
                progress.done_bytes.set(done as f64);
                Rc::new(progress)
            });
            progress.total_bytes.set(progress.done_bytes.get() + bytes as f64);
        }
        current.clone()
    }
}

/// Plans moves of columns on other drives, to make room for the content of this one.
fn plan_making_room(
    manifest: &Manifest,
    space: &mut FreeSlabs,
    rebuildable: &BTreeSet<Id>,
    (number, most): (u32, u64),
) -> Vec<Step> {
    let Some(link) = first_to_move(manifest, space, number, |part| rebuildable.contains(&part)) else {
        return Vec::new();
    };
    let most = link.rows.min(most);
    let found = space.replace(&[link.onto], &[], most, Some(link.from.slab));
    found.map_or_else(Vec::new, |found| steps_of(&link, &found))
}

/// Plans the next columns to move and their new places, and takes the slabs from the free space.
fn plan_steps(
    manifest: &Manifest,
    space: &mut FreeSlabs,
    rebuildable: &BTreeSet<Id>,
    (number, most): (u32, u64),
) -> Vec<Step> {
    let wanted = |place: SlotPlace| place.drive == number && place.state == SlotState::Active;
    let all = stretches(manifest, wanted, |part| rebuildable.contains(&part));
    let total: u64 = all.iter().map(|stretch| stretch.rows).sum();
    let mut steps = Vec::new();
    for stretch in all {
        let Some(part) = manifest.parts().find(|part| part.id == stretch.part) else { continue };
        let end = stretch.first_row + stretch.rows;
        let mut row = stretch.first_row;
        while row < end && (steps.len() as u64) < most {
            let Some(run) = part.rows.run(row) else { break };
            let places = run.places_of(row);
            let from = places[stretch.column];
            let in_rows: Vec<u32> = places.iter().map(|place| place.drive).collect();
            let possible = candidates(manifest, space, number, &in_rows);
            let share = total.div_ceil(32 * possible.len().max(1) as u64).max(1);
            let rows = share.min(end - row).min(most - steps.len() as u64);
            let Some(found) = space.replace(&possible, &in_rows, rows, Some(from.slab)) else { break };
            let (part, column, onto) = (part.id, stretch.column, found.drive);
            let link = Link { part, first_row: row, rows: found.rows, column, from, onto };
            steps.extend(steps_of(&link, &found));
            row += found.rows;
        }
    }
    steps
}

/// One step for each row that was given a slab.
pub(crate) fn steps_of(link: &Link, found: &Replacement) -> Vec<Step> {
    let step = |offset: u64| {
        let from = SlotPlace { slab: link.from.slab + offset as u32, ..link.from };
        let slab = found.slab + offset as u32;
        let to = SlotPlace { drive: found.drive, slab, state: SlotState::Active };
        Step { part: link.part, row: link.first_row + offset, column: link.column, from, to }
    };
    (0..found.rows).map(step).collect()
}

/// Task under which stalls of a drain are recorded: a drive has no part of its own.
fn drain_task(number: u32) -> Id {
    Id(u128::from(number))
}

#[cfg(test)]
mod tests {
    use stripewise_layout::Level;

    use super::*;
    use crate::{MIB, testing};

    #[test]
    fn drained_columns_move_to_drives_outside_their_rows() {
        let mut manifest = testing::pool(&[64; 5], MIB);
        let last = manifest.drives.split_off(4);
        testing::add_volume(&mut manifest, 55, Level::Raid5, 4, 9);
        manifest.drives.extend(last);
        manifest.drives[1].retiring = true;
        let part = manifest.volumes[0].parts[0].id;
        let mut books = FreeSlabs::new(&manifest);
        let free = books.free_slabs(4);
        let steps = plan_steps(&manifest, &mut books, &[part].into(), (1, 4));
        assert_eq!(steps.len(), 4);
        assert!(steps.iter().all(|step| (step.from.drive, step.to.drive) == (1, 4)), "{steps:?}");
        assert_eq!(books.free_slabs(4), free - 4, "their slabs are taken");
        let none = plan_steps(&manifest, &mut books, &BTreeSet::new(), (1, 4));
        assert!(none.is_empty(), "its volume cannot be moved now");
    }
}
