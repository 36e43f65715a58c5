//! Jobs: rebuild, emptying of drives that retire, resync after a crash, scrub. They belong to the
//! pool: the manifest records the work to be done, and the process that opens the pool and starts
//! its jobs continues where the last one stopped.
//!
//! Jobs run concurrently in lanes. One lane restores redundancy: it allocates space for missing
//! columns (`sparing/mod.rs`), fills them (`jobs/rebuild.rs` and `jobs/log_rebuild.rs`), and once
//! redundancy is complete it empties drives (`jobs/drain.rs`, shown as a rebuild, because it looks
//! like one from outside).
//! The second lane checks (`jobs/scrub.rs`); a check that writes nothing belongs to its caller
//! (`jobs/check.rs`). The third converts volumes to other layouts
//! (`jobs/convert.rs`). Two more move rows between tiers (`jobs/tier.rs`) and spread them over
//! drives (`jobs/rebalance.rs`). A resync waits until its volume is complete, because with a member
//! missing there is nothing to compare. Work that failed is retried only after something has
//! changed. Faults expected: drives fail during a job, the pool is closed.

pub(crate) mod check;
pub(crate) mod column_migration;
pub(crate) mod convert;
pub(crate) mod drain;
pub(crate) mod kind;
pub(crate) mod last_scrub;
pub(crate) mod log_rebuild;
pub(crate) mod log_scrub;
pub(crate) mod rebalance;
pub(crate) mod rebalance_plan;
pub(crate) mod rebuild;
pub(crate) mod row_queue;
pub(crate) mod scrub;
pub(crate) mod slice_activity;
pub(crate) mod snapshots;
pub(crate) mod tier;
pub(crate) mod tier_plan;
pub(crate) mod wait;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join;
use stripewise_drive::{Context, Event};

use crate::error::PoolError;
use crate::jobs::kind::JobKind;
use crate::jobs::rebuild::due_in;
use crate::jobs::slice_activity::{OfPart, joined};
use crate::jobs::tier::TierState;
use crate::jobs::wait::Wait;
use crate::manifest::format::Manifest;
use crate::manifest::ids::Id;
use crate::manifest::volume_record::VolumeRecord;
use crate::membership::replacement::replacement_in;
use crate::status::activity::Activity;
use crate::{Inner, Pool};
use stripewise_array::Array;
use stripewise_array::ScrubReport;

pub(crate) const SECOND_NS: u64 = 1_000_000_000;
/// Interval between progress samples.
const TICK_NS: u64 = SECOND_NS;
/// Time over which rates are averaged.
const RATE_WINDOW_NS: u64 = 10 * SECOND_NS;
/// Number of stalled rows of a part from which the whole part is skipped.
const MAX_STALLED_ROWS: usize = 64;

/// Result of a scrub of one volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubSummary {
    /// Name of the volume.
    pub volume: String,
    /// Findings and repairs.
    pub report: ScrubReport,
    /// Reason why it ended early, if it did.
    pub error: Option<String>,
}

/// Progress of a job on one part of a volume.
#[derive(Default)]
pub(crate) struct Progress {
    pub done_bytes: SharedBytes,
    /// Total work of the job, including that done by earlier processes.
    pub total_bytes: Cell<f64>,
    /// Time at which this process began, and the work done by then.
    pub begun: Cell<Option<(u64, f64)>>,
    samples: RefCell<VecDeque<(u64, f64)>>,
}

/// Number of bytes that work on another thread may set.
#[derive(Clone, Default)]
pub(crate) struct SharedBytes(Arc<AtomicU64>);

impl SharedBytes {
    pub(crate) fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, bytes: f64) {
        self.0.store(bytes.to_bits(), Ordering::Relaxed);
    }
}

impl Progress {
    pub(super) fn add(&self, bytes: f64) {
        self.done_bytes.set(self.done_bytes.get() + bytes);
    }

    pub(super) fn sample(&self, now_ns: u64) {
        let mut samples = self.samples.borrow_mut();
        samples.push_back((now_ns, self.done_bytes.get()));
        while samples.len() > 2 && now_ns - samples[0].0 > RATE_WINDOW_NS {
            samples.pop_front();
        }
    }

    /// Recent rate, bytes per second.
    pub(super) fn rate(&self) -> f64 {
        let samples = self.samples.borrow();
        match (samples.front(), samples.back()) {
            (Some((start, before)), Some((end, after))) if end > start => {
                (after - before) * 1e9 / (end - start) as f64
            }
            _ => 0.0,
        }
    }

    pub(super) fn activity(&self, kind: JobKind, volume: String, drive: Option<Id>) -> Activity {
        let (done, total) = (self.done_bytes.get(), self.total_bytes.get());
        let (left, rate) = ((total - done).max(0.0), self.rate());
        Activity {
            kind,
            percent: if total > 0.0 { (done * 100.0 / total).min(100.0) } else { 0.0 },
            mb_per_s: rate / 1e6,
            seconds_left: (rate > 0.0 && left > 0.0).then(|| left / rate),
            volume,
            drive,
        }
    }
}

/// Parts that a lane works on, with the progress of each.
pub(crate) type Parts = BTreeMap<Id, Rc<Progress>>;

#[derive(Default)]
pub(crate) struct Lane {
    pub running: Cell<bool>,
    /// Parts of the current job, also while it pauses.
    pub current: RefCell<Parts>,
    /// Work is in progress at this moment.
    busy: Cell<bool>,
    /// Failed tasks and their errors: not retried before something changes.
    stalled: RefCell<BTreeMap<Task, Wait>>,
}

/// A row of a part, or a part as a whole; `None`: work without a part.
pub(crate) type Task = Option<(Id, Option<u64>)>;

impl Lane {
    pub(super) fn is_stalled(&self, task: Task) -> bool {
        let stalled = self.stalled.borrow();
        let of_part = task.map(|(part, _)| (part, None));
        stalled.contains_key(&task) || (task.is_some() && stalled.contains_key(&of_part))
    }

    /// Rows of a part that failed.
    pub(super) fn stalled_rows(&self, part: Id) -> BTreeSet<u64> {
        let stalled = self.stalled.borrow();
        let tasks = stalled.keys().flatten().filter(|(other, _)| *other == part);
        tasks.filter_map(|(_, row)| *row).collect()
    }

    pub(super) fn stall(&self, task: Task, why: impl Into<Wait>) {
        let why = why.into();
        let mut stalled = self.stalled.borrow_mut();
        if let Some((part, Some(_))) = task {
            let rows =
                stalled.keys().flatten().filter(|(other, row)| *other == part && row.is_some()).count();
            if rows >= MAX_STALLED_ROWS {
                stalled.insert(Some((part, None)), why);
                return;
            }
        }
        stalled.insert(task, why);
    }

    /// Reason why a part as a whole is skipped.
    pub(crate) fn stalled_because(&self, part: Id) -> Option<Wait> {
        self.stalled.borrow().get(&Some((part, None))).cloned()
    }

    /// Allows failed tasks to be retried.
    pub(super) fn forget_stalls(&self) {
        self.stalled.borrow_mut().clear();
    }

    fn failure(&self) -> Option<String> {
        self.stalled.borrow().values().next().map(|wait| wait.why.clone())
    }

    pub(super) fn is_at(&self, part: Id) -> bool {
        self.busy.get() && self.current.borrow().contains_key(&part)
    }
}

#[derive(Default)]
pub(crate) struct Jobs {
    started: Cell<bool>,
    pub(crate) rebuilding: Lane,
    /// Progress of rebuilds of logs, kept while they pause.
    pub(crate) logs: RefCell<Parts>,
    pub(crate) checking: Lane,
    pub(crate) converting: Lane,
    pub(crate) tiering: Lane,
    pub(crate) balancing: Lane,
    pub(crate) tiers: TierState,
    /// Something has changed that the rebuild lane must consider before it continues.
    pub(crate) look_again: Cell<bool>,
    pub(crate) reports: RefCell<Vec<ScrubSummary>>,
    scrubbing: Cell<bool>,
    /// The task that starts scheduled scrubs is running.
    pub(crate) scheduling: Cell<bool>,
    /// The task that takes automatic snapshots is running.
    pub(crate) snapshotting: Cell<bool>,
    /// Volumes of which the last automatic snapshot could not be taken, and why.
    pub(crate) snapshots_not_taken: RefCell<BTreeMap<String, String>>,
    pub(crate) changed: Event,
}

impl Jobs {
    /// Waits until no job is running.
    pub(crate) async fn until_idle(&self) {
        self.changed.notify_all();
        while self.lanes().iter().any(|lane| lane.running.get()) {
            self.changed.wait().await;
        }
    }

    /// Waits until no conversion is running. Conversions use volumes as clients do, so arrays are
    /// closed after them.
    pub(crate) async fn until_conversions_rest(&self) {
        self.changed.notify_all();
        while self.converting.running.get() {
            self.changed.wait().await;
        }
    }

    /// Waits until no job works on the array.
    pub(crate) async fn until_off(&self, part: Id) {
        while self.lanes().iter().any(|lane| lane.is_at(part)) {
            self.look_again.set(true);
            self.changed.wait().await;
        }
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started.get()
    }

    /// Allows failed tasks to be retried after drives came or went.
    pub(crate) fn forget_stalls(&self) {
        self.rebuilding.stalled.borrow_mut().clear();
        self.converting.stalled.borrow_mut().clear();
        self.balancing.stalled.borrow_mut().clear();
    }

    /// Allows conversions to be retried after space was freed. True if any had failed.
    pub(crate) fn forget_conversion_stalls(&self) -> bool {
        let mut stalled = self.converting.stalled.borrow_mut();
        !std::mem::take(&mut *stalled).is_empty()
    }

    /// True if rows are being rebuilt or moved between tiers; all other moves of rows wait for
    /// that.
    pub(crate) fn is_rebuilding_or_tiering(&self) -> bool {
        self.rebuilding.running.get() || self.tiering.running.get()
    }

    /// True if a scrub runs, and no job that restores or moves data: a scrub is in no hurry.
    pub(crate) fn only_scrubs(&self) -> bool {
        let others = [&self.rebuilding, &self.converting, &self.tiering];
        self.scrubbing.get() && !others.iter().any(|lane| lane.running.get())
    }

    fn lanes(&self) -> [&Lane; 5] {
        [&self.rebuilding, &self.checking, &self.converting, &self.tiering, &self.balancing]
    }

    /// Begins work on these parts.
    pub(crate) fn begin(&self, lane: &Lane, parts: Parts) {
        *lane.current.borrow_mut() = parts;
        lane.busy.set(true);
        self.changed.notify_all();
    }

    /// Marks the lane as paused: arrays may be closed.
    pub(crate) fn pause(&self, lane: &Lane) {
        lane.busy.set(false);
        self.changed.notify_all();
    }

    pub(crate) fn end(&self, lane: &Lane) {
        lane.current.borrow_mut().clear();
        self.pause(lane);
    }
}

impl Pool {
    /// Starts all jobs that are due, and from now on those that become due, including spare
    /// allocation. A second call only retries failed tasks.
    pub fn start_jobs(&self) {
        let jobs = &self.0.jobs;
        jobs.started.set(true);
        for lane in jobs.lanes() {
            lane.forget_stalls();
        }
        self.0.note_fast_drives();
        self.0.kick_jobs();
        self.0.start_schedule();
        self.0.start_snapshots();
    }

    /// Runs jobs of a kind, and all others that are due, until none of that kind is left.
    pub async fn wait(&self, kind: JobKind) -> Result<(), PoolError> {
        let inner = &self.0;
        inner.check_changeable()?;
        self.start_jobs();
        let lane = match kind {
            JobKind::Rebuild => &inner.jobs.rebuilding,
            JobKind::Scrub => &inner.jobs.checking,
            JobKind::Convert => &inner.jobs.converting,
            JobKind::Destage => return Ok(inner.volumes.destage().await?),
            JobKind::Tier => &inner.jobs.tiering,
            JobKind::Rebalance => &inner.jobs.balancing,
        };
        loop {
            inner.check_open()?;
            let changed = inner.jobs.changed.wait();
            // A rebuild may make a resync due; tier moves wait for a rebuild, and a rebalance for
            // both.
            let follows = matches!(kind, JobKind::Scrub | JobKind::Tier | JobKind::Rebalance);
            let is_last = kind == JobKind::Rebalance && inner.jobs.tiering.running.get();
            let more_may_come = is_last || (follows && inner.jobs.rebuilding.running.get());
            if !lane.running.get() && !more_may_come {
                if kind == JobKind::Convert {
                    inner.freed.until_reclaimed().await;
                    if lane.running.get() {
                        // The space that the conversion waited for may have become free.
                        continue;
                    }
                }
                return lane.failure().map_or(Ok(()), |failure| Err(PoolError::Job(failure)));
            }
            changed.await;
        }
    }

    /// Reason why jobs of a kind cannot go on: a rebuild or a scrub that failed.
    pub fn job_failure(&self, kind: JobKind) -> Option<String> {
        match kind {
            JobKind::Rebuild => self.0.jobs.rebuilding.failure(),
            JobKind::Scrub => self.0.jobs.checking.failure(),
            _ => None,
        }
    }

    /// Results of the current or last scrub so far: volumes that it has finished, in whichever
    /// process. The status has the results of a scrub that ended before the pool was opened.
    pub fn scrub_reports(&self) -> Vec<ScrubSummary> {
        self.0.jobs.reports.borrow().clone()
    }
}

impl Inner {
    /// Starts the idle lanes, if jobs run in this pool.
    pub(crate) fn kick_jobs(&self) {
        let jobs = &self.jobs;
        if !jobs.started.get() || self.lifecycle.is_closed() || self.lifecycle.is_read_only() {
            return;
        }
        jobs.look_again.set(true);
        if !jobs.rebuilding.running.replace(true) {
            let inner = self.rc();
            self.context.spawn(async move { inner.run_rebuilding().await });
        }
        if !jobs.checking.running.replace(true) {
            let inner = self.rc();
            self.context.spawn(async move { inner.run_checks().await });
        }
        if !jobs.converting.running.replace(true) {
            let inner = self.rc();
            self.context.spawn(async move { inner.run_conversions().await });
        }
        jobs.changed.notify_all();
    }

    async fn run_rebuilding(&self) {
        let lane = &self.jobs.rebuilding;
        loop {
            self.jobs.look_again.set(false);
            if !lane.is_stalled(None)
                && let Err(error) = self.allocate_spares().await
            {
                // The error would stop the next attempt, too.
                lane.stall(None, error.to_string());
            }
            if self.lifecycle.is_closed() {
                break;
            }
            if self.rebuild().await || self.rebuild_log().await || self.drain().await {
                continue;
            }
            if !self.jobs.look_again.get() {
                break;
            }
        }
        self.jobs.end(lane);
        lane.running.set(false);
        // A resync, tier moves or a rebalance may have waited for this.
        self.kick_checks();
        self.kick_tiers();
        self.kick_balancing();
        self.jobs.changed.notify_all();
    }

    fn kick_checks(&self) {
        if self.lifecycle.is_closed() || self.next_check().is_none() {
            return;
        }
        if !self.jobs.checking.running.replace(true) {
            let inner = self.rc();
            self.context.spawn(async move { inner.run_checks().await });
        }
    }

    async fn run_checks(&self) {
        let lane = &self.jobs.checking;
        while !self.lifecycle.is_closed() {
            match self.next_check() {
                Some((part, true)) => {
                    self.jobs.scrubbing.set(true);
                    self.run_scrub(part).await;
                    self.jobs.scrubbing.set(false);
                    self.set_background_share();
                }
                Some((part, false)) => self.run_resync(part).await,
                None => break,
            }
        }
        lane.running.set(false);
        self.jobs.changed.notify_all();
    }

    /// Jobs that are running or due.
    pub(crate) fn activity(&self) -> Vec<Activity> {
        let manifest = &*self.manifest.borrow();
        let mut all = Vec::new();
        for volume in &manifest.volumes {
            for part in &volume.parts {
                let Some(log) = self.volumes.log(part.id) else { continue };
                all.extend(self.log_rebuild_activity(part, &log, &volume.name));
                all.extend(self.log_scrub_activity(part, &log, &volume.name));
            }
            let of_parts = self.jobs_on_parts(manifest, volume);
            match volume.conversion.is_none() && volume.slicing().is_some() {
                true => all.extend(joined(of_parts, volume.parts.len())),
                false => all.extend(of_parts.into_iter().map(|job| job.activity)),
            }
        }
        for volume in &manifest.volumes {
            let Some(conversion) = volume.conversion else { continue };
            let current = self.jobs.converting.current.borrow();
            let progress = volume.parts.iter().find_map(|part| current.get(&part.id).cloned());
            let progress = progress.unwrap_or_else(|| {
                let progress = Progress::default();
                progress.done_bytes.set(conversion.next_offset_bytes as f64);
                progress.total_bytes.set(conversion.end_bytes(volume.size_bytes) as f64);
                Rc::new(progress)
            });
            all.push(progress.activity(JobKind::Convert, volume.name.clone(), None));
        }
        all.extend(self.rebalance_activity(manifest));
        all
    }
    /// Jobs on the parts of a volume that are running or due.
    fn jobs_on_parts(&self, manifest: &Manifest, volume: &VolumeRecord) -> Vec<OfPart> {
        let mut jobs = Vec::new();
        // Regions of the parts before: a scrub numbers them through.
        let mut passed = 0;
        for (number, part) in volume.parts.iter().enumerate() {
            let Some(array) = self.volumes.array(part.id) else { continue };
            let mut push = |kind: JobKind, progress: &Progress, drive: Option<Id>, is_running: bool| {
                let activity = progress.activity(kind, volume.name.clone(), drive);
                let total = progress.total_bytes.get();
                jobs.push(OfPart { part: number, is_running, total, activity });
            };
            let rebuilding = self.jobs.rebuilding.current.borrow().get(&part.id).cloned();
            let (due, replacing, regions, is_resync_due) = array.visit(|array| {
                let due = due_in(manifest, array);
                (due, replacement_in(manifest, part, array), array.regions(), is_resync_due(array))
            });
            if let Some(progress) = &rebuilding {
                let drive = due.drive.or(replacing.map(|(successor, ..)| successor));
                push(JobKind::Rebuild, progress, drive, true);
            } else if let Some((successor, done, left)) = replacing.filter(|_| due.rows == 0) {
                let progress = Progress::default();
                progress.done_bytes.set(done as f64);
                progress.total_bytes.set((done + left) as f64);
                push(JobKind::Rebuild, &progress, Some(successor), false);
            } else if due.rows > 0 {
                let progress = Progress::default();
                progress.done_bytes.set(due.done_bytes);
                progress.total_bytes.set(due.done_bytes + due.bytes);
                push(JobKind::Rebuild, &progress, due.drive, false);
            }
            if let Some(progress) = self.jobs.tiering.current.borrow().get(&part.id) {
                push(JobKind::Tier, progress, None, true);
            }
            let checking = self.jobs.checking.current.borrow().get(&part.id).cloned();
            let scrub = manifest.scrub.as_ref().filter(|scrub| scrub.volumes.contains(&volume.id));
            if let Some(progress) = &checking {
                push(JobKind::Scrub, progress, None, true);
            } else if scrub.is_some() || is_resync_due {
                let next = scrub.filter(|scrub| scrub.volumes.first() == Some(&volume.id));
                let next_region = next.map_or(0, |scrub| scrub.next_region);
                let progress = Progress::default();
                progress.done_bytes.set(next_region.saturating_sub(passed) as f64);
                progress.total_bytes.set(regions as f64);
                push(JobKind::Scrub, &progress, None, false);
            }
            if volume.slicing().is_some() {
                passed += regions;
            }
        }
        jobs
    }
}

/// Runs `work` to its end. Until then it samples the progress of the parts, and calls `checkpoint`
/// every `interval_ns`.
pub(crate) async fn watched<T, C: Future<Output = Result<(), PoolError>>>(
    context: &Context,
    parts: &Parts,
    work: impl Future<Output = T>,
    interval_ns: u64,
    checkpoint: impl Fn() -> C,
) -> T {
    let (done, ended) = (Cell::new(false), Event::new());
    parts.values().for_each(|progress| progress.sample(context.now_ns()));
    let working = async {
        let result = work.await;
        done.set(true);
        ended.notify_all();
        result
    };
    let watching = async {
        let mut next_ns = context.now_ns() + interval_ns;
        while !done.get() {
            let end = pin!(ended.wait());
            let _ = context.time_limit_ns(TICK_NS.min(interval_ns), end).await;
            let now_ns = context.now_ns();
            if done.get() {
                break;
            }
            parts.values().for_each(|progress| progress.sample(now_ns));
            if now_ns >= next_ns {
                // Progress that is not recorded now is recorded next time, or the work is repeated.
                let _ = checkpoint().await;
                next_ns = context.now_ns() + interval_ns;
            }
        }
    };
    join(working, watching).await.0
}

/// True if a crash left chunks to compare and all their columns are present.
pub(crate) fn is_resync_due(array: &Array) -> bool {
    array.needs_resync() && array.lacking_rows().is_empty() && !array.is_protected()
}
