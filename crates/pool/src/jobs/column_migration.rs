//! Moving columns of rows for the pool: one step is one column of one row. Drives that retire or
//! are replaced are emptied so (`jobs/drain.rs`), rows change tiers so (`jobs/tier.rs`), and free
//! space is brought to where rows can use it (`jobs/rebalance.rs`).
//!
//! A step has slabs at its new place, taken from the books. It is *taken* when both places hold the
//! same and both are written; it counts when it is recorded, together with others, in one commit.
//! Until then a cut, or the loss of the new drive, leaves the column where it was. What is not
//! recorded gives its slabs back, once nothing goes there any more.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use futures_util::future::join_all;

use crate::Inner;
use crate::jobs::Parts;
use crate::manifest::drive_record::DriveRecord;
use crate::manifest::format::Manifest;
use crate::manifest::ids::Id;
use crate::manifest::volume_record::PartRecord;
use crate::open_volumes::OpenVolumes;
use crate::space::slabs::FreeSlabs;
use crate::sparing::allocation::put;
use crate::superblock::commit::Change;
use stripewise_array::rows::SlotPlace;
use stripewise_array::{Array, ArrayError, ArrayHandle, LocalFuture};

/// Throttle, called before each region is copied, with the region's size in bytes; it may take its
/// time. `false`: the migration is to be cancelled.
pub(crate) type Pace<'a> = &'a dyn Fn(u64) -> LocalFuture<'a, bool>;

/// A column of a row that migrates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub part: Id,
    pub row: u64,
    pub column: usize,
    pub from: SlotPlace,
    pub to: SlotPlace,
}

/// Result of a batch of steps.
#[derive(Default)]
pub(crate) struct Batch {
    /// Steps that were taken, to be recorded.
    pub done: Vec<Step>,
    /// Bytes that these copied.
    pub bytes: u64,
    /// First failure: the part and the reason.
    pub failure: Option<(Id, String)>,
}

/// Takes steps, which copies columns; recording where they are now is the pool's.
pub(crate) struct Migrator<'a> {
    volumes: &'a OpenVolumes,
    space: &'a RefCell<FreeSlabs>,
}

impl<'a> Migrator<'a> {
    /// Over all open volumes of a pool.
    pub(crate) fn of(pool: &'a Inner) -> Self {
        Self { volumes: &pool.volumes, space: &pool.space }
    }

    /// Takes steps, several at a time, until all are taken or it `rests`. Steps that were not begun
    /// give their slabs back.
    pub(crate) async fn take_batch(
        &self,
        steps: Vec<Step>,
        at_once: u64,
        parts: &Parts,
        rests: &dyn Fn() -> bool,
        pace: Pace<'_>,
    ) -> Batch {
        let (queue, batch) = (RefCell::new(VecDeque::from(steps)), RefCell::new(Batch::default()));
        let work = async || {
            while !rests() {
                let Some(step) = queue.borrow_mut().pop_front() else { return };
                let taken = self.take(&step, pace).await;
                let mut batch = batch.borrow_mut();
                match taken {
                    Ok(bytes) => {
                        if let Some(progress) = parts.get(&step.part) {
                            progress.add(bytes as f64);
                        }
                        batch.bytes += bytes;
                        batch.done.push(step);
                    }
                    Err(error) => {
                        batch.failure.get_or_insert((step.part, error.to_string()));
                    }
                }
            }
        };
        join_all((0..at_once).map(|_| work())).await;
        for step in queue.take() {
            self.give_back(&step);
        }
        batch.into_inner()
    }

    /// Copies a column to its new place; bytes that it took. Where it fails the step's slabs are
    /// given back.
    async fn take(&self, step: &Step, pace: Pace<'_>) -> Result<u64, ArrayError> {
        let Some(array) = self.volumes.array(step.part) else {
            self.give_back(step);
            return Err(ArrayError::Closed);
        };
        let row = step.row;
        let bytes = array.visit(|array| array.row_written_bytes(row));
        match copy_column(&array, step, pace).await {
            Ok(()) => Ok(bytes),
            Err(error) => {
                self.undo(step).await;
                Err(error)
            }
        }
    }

    /// Ends a migration without its new place, whose slabs are free when nothing is on its way
    /// there any more.
    async fn undo(&self, step: &Step) {
        if let Some(array) = self.volumes.array(step.part) {
            let (row, column) = (step.row, step.column);
            let cancel = async move |array: Array| {
                array.cancel_migration(row, column);
                array.until_row_is_quiet(row).await;
                array.until_pages_written().await;
            };
            array.call(cancel).await;
        }
        self.give_back(step);
    }

    /// Gives the slabs back of a step that was not begun.
    fn give_back(&self, step: &Step) {
        self.space.borrow_mut().give(step.to.drive, step.to.slab, 1);
    }
}

/// Copies a column to its new place, region by region.
async fn copy_column(array: &ArrayHandle, step: &Step, pace: Pace<'_>) -> Result<(), ArrayError> {
    let Step { row, column, to, .. } = *step;
    let migration = array.visit(|array| array.begin_migration(row, column, to))?;
    for region in migration.regions() {
        if !array.visit(|array| array.has_to_migrate(&migration, region))? {
            continue;
        }
        if !pace(migration.region_bytes()).await {
            array.visit(|array| array.cancel_migration(row, column));
            return Err(ArrayError::Moved { row, column });
        }
        let migration = migration.clone();
        array.call(async move |array| array.migrate_region(&migration, region).await).await?;
    }
    array.call(async move |array| array.complete_migration(&migration).await).await
}

impl Inner {
    /// Records where columns are now; ends the migrations of those that cannot be.
    pub(crate) async fn record_steps(&self, steps: Vec<Step>) -> Result<(), super::PoolError> {
        self.record_steps_with(steps, |_, _| ()).await
    }

    /// As [`Self::record_steps`]; `note` records further changes, given the number of steps.
    pub(crate) async fn record_steps_with(
        &self,
        steps: Vec<Step>,
        note: impl FnOnce(&mut Manifest, u64) + 'static,
    ) -> Result<(), super::PoolError> {
        if steps.is_empty() {
            return Ok(());
        }
        let (planned, applied) = (steps.clone(), std::rc::Rc::new(Cell::new(0usize)));
        let refused = std::rc::Rc::new(RefCell::new(Vec::new()));
        let (sink, counter) = (refused.clone(), applied.clone());
        let pool = self.rc();
        let committed = self
            .try_commit(None, move |manifest| {
                let (slab_bytes, before) = (manifest.slab_bytes, manifest.clone());
                for step in planned {
                    // The drive may have been set to be emptied since, or may be out.
                    let takes_new = manifest.drive(step.to.drive).is_some_and(DriveRecord::takes_new);
                    // A migration that ended since, because the drive it went to refused a write,
                    // is none.
                    let array = pool.volumes.array(step.part);
                    let is_migrating = array.as_ref().is_some_and(|array| {
                        array.visit(|array| array.begin_recording(step.row, step.column, step.to))
                    });
                    // If more blocks are lost than can be recorded, the column stays at its old
                    // place.
                    let says_what_is_lost = |part: &PartRecord| {
                        array
                            .as_ref()
                            .is_some_and(|array| part.has_losses_of(array, step.row, step.column, slab_bytes))
                    };
                    let part = manifest.part_mut(step.part).filter(|_| takes_new && is_migrating);
                    // The row may have been freed and allocated again since, on other drives.
                    let is_as_planned = |part: &&mut PartRecord| {
                        let is_there = part.rows.place(step.row, step.column) == Some(step.from);
                        is_there && !has_another_on(part, &step)
                    };
                    match part.filter(is_as_planned).filter(|part| says_what_is_lost(part)) {
                        Some(part) => {
                            put(&mut part.rows, step.row, 1, step.column, step.to);
                            counter.set(counter.get() + 1);
                        }
                        None => sink.borrow_mut().push(step),
                    }
                }
                if counter.get() == 0 {
                    return Ok(Change::Nothing(()));
                }
                let width = manifest.parts().map(|part| part.rows.width()).max().unwrap_or(0) as u64;
                pool.commits.check_runs((&before, manifest), counter.get() as u64, width)?;
                note(manifest, counter.get() as u64);
                Ok(Change::Commit(()))
            })
            .await;
        // If the new drive failed during the commit, the column stays at its old place.
        let is_where_it_was =
            |step: &Step| place_of(&self.manifest.borrow(), step) == Some((step.from.drive, step.from.slab));
        let refused = refused.take();
        for step in &steps {
            if committed.is_err() || refused.contains(step) || is_where_it_was(step) {
                Migrator::of(self).undo(step).await;
            }
        }
        committed
    }
}

/// True if the target drive already holds another column of the row.
fn has_another_on(part: &PartRecord, step: &Step) -> bool {
    let places = part.rows.run(step.row).map(|run| run.places_of(step.row));
    let is_another =
        |(column, place): (usize, &SlotPlace)| column != step.column && place.drive == step.to.drive;
    places.is_some_and(|places| places.iter().enumerate().any(is_another))
}

/// The drive and the slab where the manifest has a step's column.
fn place_of(manifest: &Manifest, step: &Step) -> Option<(u32, u32)> {
    let part = manifest.parts().find(|part| part.id == step.part)?;
    part.rows.place(step.row, step.column).map(|place| (place.drive, place.slab))
}

#[cfg(test)]
mod tests {
    use stripewise_layout::Level;

    use super::*;
    use crate::{MIB, testing};
    use stripewise_array::rows::SlotState;

    #[test]
    fn column_never_moves_to_a_drive_already_in_its_row() {
        let mut manifest = testing::pool(&[64; 5], MIB);
        testing::add_volume(&mut manifest, 55, Level::Raid5, 4, 2);
        let part = &manifest.volumes[0].parts[0];
        let places = part.rows.run(0).expect("a row").places_of(0);
        let step = |to: u32| {
            let to = SlotPlace { drive: to, slab: 60, state: SlotState::Active };
            Step { part: part.id, row: 0, column: 1, from: places[1], to }
        };
        assert!(has_another_on(part, &step(places[0].drive)));
        assert!(!has_another_on(part, &step(places[1].drive)), "to other slabs of its own drive");
        let elsewhere = (0..5).find(|drive| places.iter().all(|place| place.drive != *drive));
        assert!(!has_another_on(part, &step(elsewhere.expect("five drives, four columns"))));
    }
}
