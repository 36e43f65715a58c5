//! Rebalancing: columns move between data drives until free space lies where rows can use it
//! (`jobs/rebalance_plan.rs` plans the moves). It is started by command, and automatically when a
//! data drive was added and rows gain by it. It is recorded in the manifest, so the next process
//! that opens the pool continues it.
//!
//! It has the lowest priority: nothing is moved during a rebuild, the copying has the lowest share
//! of each drive, and a change of drives or volumes waits only for the columns in progress. Batches
//! are as in a drain: both places are written until one commit records the new ones. Faults
//! expected: either drive of a migration fails (the migration is cancelled, and lost columns are
//! rebuilt first), a power cut (moves that were not recorded have not happened), others use up the
//! gain (the rebalance ends).

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::error::PoolError;
use crate::jobs::column_migration::{Batch, Migrator, Step};
use crate::jobs::drain::steps_of;
use crate::jobs::rebalance_plan::plan;
use crate::jobs::{JobKind, Parts, Progress, SECOND_NS, watched};
use crate::manifest::events::EventKind;
use crate::manifest::format::{Manifest, RebalanceIntent};
use crate::manifest::ids::Id;
use crate::open_volumes::OpenVolumes;
use crate::space::evacuation::Link;
use crate::space::slabs::FreeSlabs;
use crate::status::activity::Activity;
use crate::superblock::commit::Change;
use crate::{Inner, Pool, REBUILD_PRIORITY_LOW_PERCENT};
use stripewise_array::Array;

/// Maximum number of columns in a batch.
const MOST_STEPS: u64 = 256;
/// Maximum number of columns migrated concurrently.
const MOST_AT_ONCE: u64 = 8;

impl Pool {
    /// Requests a rebalance, so that there is room for more rows; recorded when this returns, and
    /// done when jobs run. `false`: no existing layout gains by it, and nothing is moved.
    pub async fn rebalance(&self) -> Result<bool, PoolError> {
        let inner = &self.0;
        let _alone = inner.administer().await?;
        inner.freed.until_reclaimed().await;
        let time_unix_ms = inner.news.unix_ms();
        let pool = inner.rc();
        let is_due = inner
            .try_commit(None, move |manifest| {
                if !pool.would_gain(manifest) {
                    return Ok(Change::Nothing(false));
                }
                if manifest.rebalance.is_some() {
                    return Ok(Change::Nothing(true));
                }
                manifest.rebalance = Some(RebalanceIntent::default());
                manifest.events.push(time_unix_ms, EventKind::Rebuild, "rebalance started");
                Ok(Change::Commit(true))
            })
            .await?;
        inner.jobs.balancing.forget_stalls();
        drop(_alone);
        inner.kick_balancing();
        Ok(is_due)
    }

    /// Stops a rebalance; columns that have moved stay where they are. True if there was one.
    pub async fn stop_rebalance(&self) -> Result<bool, PoolError> {
        let inner = &self.0;
        let _alone = inner.administer().await?;
        let time_unix_ms = inner.news.unix_ms();
        inner
            .try_commit(None, move |manifest| {
                let Some(intent) = manifest.rebalance.take() else { return Ok(Change::Nothing(false)) };
                let text = format!("rebalance stopped, {} slabs moved", intent.moved_slabs);
                manifest.events.push(time_unix_ms, EventKind::Rebuild, &text);
                Ok(Change::Commit(true))
            })
            .await
    }
}

impl Inner {
    /// True if an existing layout would have room for more rows after a rebalance.
    pub(crate) fn would_gain(&self, manifest: &Manifest) -> bool {
        let mut books = self.space.borrow().clone();
        books.refresh(manifest);
        let rebuildable = self.movable();
        !plan(manifest, &books, |part| rebuildable.contains(&part)).is_empty()
    }

    /// Requests a rebalance after a data drive was added, if rows gain by it.
    pub(crate) fn rebalance_onto_new(&self, manifest: &mut Manifest) {
        if manifest.rebalance.is_none() && self.would_gain(manifest) {
            manifest.rebalance = Some(RebalanceIntent::default());
            let text = "rebalance started, so that volumes can use the new drive's space";
            manifest.events.push(self.news.unix_ms(), EventKind::Rebuild, text);
        }
    }

    /// Moves that are left.
    fn due_to_rebalance(&self, manifest: &Manifest) -> Vec<Link> {
        let rebuildable = self.movable();
        plan(manifest, &self.space.borrow(), |part| rebuildable.contains(&part))
    }

    /// Continues a rebalance, if there is one and jobs run.
    pub(crate) fn kick_balancing(&self) {
        let lane = &self.jobs.balancing;
        let is_due = self.manifest.borrow().rebalance.is_some();
        if !self.jobs.is_started() || self.lifecycle.is_closed() || self.lifecycle.is_read_only() || !is_due {
            return;
        }
        if !lane.running.replace(true) {
            let inner = self.rc();
            self.context.spawn(async move { inner.run_balancing().await });
        }
    }

    async fn run_balancing(&self) {
        let lane = &self.jobs.balancing;
        while !self.lifecycle.is_closed() && !self.jobs.is_rebuilding_or_tiering() {
            match self.balance_some().await {
                Ok(true) => {}
                Ok(false) => break,
                Err(why) => {
                    lane.stall(None, why);
                    break;
                }
            }
            self.kick_due_tiers();
        }
        self.jobs.end(lane);
        lane.running.set(false);
        self.kick_due_tiers();
        self.jobs.changed.notify_all();
    }

    /// Starts the tier moves that became due while columns moved.
    fn kick_due_tiers(&self) {
        if self.jobs.tiers.is_due.take() {
            self.kick_tiers();
        }
    }

    /// True if migrations are to be cancelled for now.
    fn should_rest(&self) -> bool {
        let is_over = self.lifecycle.is_closed() || self.manifest.borrow().rebalance.is_none();
        is_over || self.lifecycle.is_turn_wanted() || self.jobs.is_rebuilding_or_tiering()
    }

    /// Moves a batch of columns and records their new places. True if there is more to do.
    async fn balance_some(&self) -> Result<bool, String> {
        // Slabs freed by the last batch are room for this one.
        self.freed.until_reclaimed().await;
        let _alone = self.lifecycle.turn().await;
        if self.lifecycle.is_closed() || self.manifest.borrow().rebalance.is_none() {
            return Ok(false);
        }
        let links = self.due_to_rebalance(&self.manifest.borrow());
        let steps = take_room(&self.manifest.borrow(), &mut self.space.borrow_mut(), &links);
        if steps.is_empty() {
            return self.end_rebalance().await.map(|()| false).map_err(|error| error.to_string());
        }
        let parts = self.note_rebalance(&links, &steps);
        let lane = &self.jobs.balancing;
        self.jobs.begin(lane, parts.clone());
        self.set_share(REBUILD_PRIORITY_LOW_PERCENT.min(self.manifest.borrow().rebuild_priority_percent));
        let at_once = self.rows_at_once(parts.keys().copied()).min(MOST_AT_ONCE);
        let (rests, pace) = (
            || self.should_rest() || self.jobs.tiers.is_due.get(),
            |_| -> stripewise_array::LocalFuture<'_, bool> {
                Box::pin(std::future::ready(!self.should_rest()))
            },
        );
        let migrator = Migrator::of(self);
        let taking = migrator.take_batch(steps, at_once, &parts, &rests, &pace);
        let nothing = || std::future::ready(Ok(()));
        let Batch { done, bytes, failure } = watched(&self.context, &parts, taking, SECOND_NS, nothing).await;
        self.jobs.pause(lane);
        self.set_background_share();
        let count = done.len();
        let recorded = self.record_steps_with(done, move |manifest, moved| {
            if let Some(intent) = &mut manifest.rebalance {
                intent.moved_slabs += moved;
                intent.moved_bytes += bytes;
            }
        });
        recorded.await.map_err(|error| error.to_string())?;
        match failure {
            Some((part, why)) if count == 0 && !self.should_rest() => Err(format!(
                "rows of volume {} could not be moved: {why}",
                self.manifest.borrow().volume_of(part).1
            )),
            _ => Ok(true),
        }
    }

    /// Updates the progress of the rebalance for the status: one progress for all parts.
    fn note_rebalance(&self, links: &[Link], steps: &[Step]) -> Parts {
        let known = self.jobs.balancing.current.borrow().values().next().cloned();
        let (done, left) = rebalance_bytes(&self.volumes, &self.manifest.borrow(), links);
        let progress = known.unwrap_or_else(|| {
            let progress = Progress::default();
            progress.done_bytes.set(done);
            Rc::new(progress)
        });
        progress.total_bytes.set(progress.done_bytes.get() + left);
        let parts: BTreeSet<Id> = steps.iter().map(|step| step.part).collect();
        parts.into_iter().map(|part| (part, progress.clone())).collect()
    }

    async fn end_rebalance(&self) -> Result<(), PoolError> {
        let time_unix_ms = self.news.unix_ms();
        self.try_commit(None, move |manifest| {
            let Some(intent) = manifest.rebalance.take() else { return Ok(Change::Nothing(())) };
            let text = format!("rebalance finished, {} slabs moved", intent.moved_slabs);
            manifest.events.push(time_unix_ms, EventKind::Rebuild, &text);
            Ok(Change::Commit(()))
        })
        .await
    }

    /// The rebalance in the status, running or due.
    pub(crate) fn rebalance_activity(&self, manifest: &Manifest) -> Option<Activity> {
        manifest.rebalance.as_ref()?;
        let running = self.jobs.balancing.current.borrow().values().next().cloned();
        let progress = running.unwrap_or_else(|| {
            let (done, left) = rebalance_bytes(&self.volumes, manifest, &self.due_to_rebalance(manifest));
            let progress = Progress::default();
            progress.done_bytes.set(done);
            progress.total_bytes.set(done + left);
            Rc::new(progress)
        });
        Some(progress.activity(JobKind::Rebalance, String::new(), None))
    }
}

/// Takes slabs for the first of these moves, up to one batch.
fn take_room(manifest: &Manifest, space: &mut FreeSlabs, links: &[Link]) -> Vec<Step> {
    let (mut steps, mut seen): (Vec<Step>, BTreeSet<(Id, u64)>) = (Vec::new(), BTreeSet::new());
    for link in links {
        let rows = link.rows.min(MOST_STEPS.saturating_sub(steps.len() as u64));
        let part = manifest.parts().find(|part| part.id == link.part);
        let is_there =
            part.is_some_and(|part| part.rows.place(link.first_row, link.column) == Some(link.from));
        // A move that depends on moves of this batch has to wait for them.
        let follows = (link.first_row..link.first_row + rows).any(|row| seen.contains(&(link.part, row)));
        if rows == 0 || !is_there || follows {
            break;
        }
        let Some(found) = space.replace(&[link.onto], &[], rows, Some(link.from.slab)) else { break };
        seen.extend((link.first_row..link.first_row + found.rows).map(|row| (link.part, row)));
        steps.extend(steps_of(link, &found));
    }
    steps
}

/// Bytes that have moved, and bytes that are left.
fn rebalance_bytes(volumes: &OpenVolumes, manifest: &Manifest, links: &[Link]) -> (f64, f64) {
    let done = manifest.rebalance.as_ref().map_or(0, |intent| intent.moved_bytes);
    let of_link = |link: &Link| {
        let array = volumes.array(link.part);
        let rows = link.first_row..link.first_row + link.rows;
        let written = |array: &Array| rows.map(|row| array.row_written_bytes(row)).sum::<u64>();
        array.map_or(0, |array| array.visit(written))
    };
    (done as f64, links.iter().map(of_link).sum::<u64>() as f64)
}
