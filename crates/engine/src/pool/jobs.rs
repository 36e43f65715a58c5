//! Jobs: rebuild, resync after a crash, scrub. They belong to the pool: what is to be done stands in the manifest, and
//! whoever opens the pool and starts its jobs goes on with them where the last one stopped.
//!
//! Two lanes work side by side: one rebuilds (the volume with least redundancy left first), one checks. A resync waits
//! for its volume to be whole, since with a member missing there is nothing to compare. How far a rebuild has come is
//! recorded every few seconds, after the new drive was flushed. Faults expected: the drive being rebuilt fails (the next
//! spare takes over), the pool is closed, more blocks are lost than can be recorded (then the slot does not become
//! current).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::pin::pin;
use std::rc::Rc;
use std::str::FromStr;

use futures_util::future::join;
use serde::{Deserialize, Serialize};
use stripewise_drive::Event;

use super::commit::Change;
use super::error::PoolError;
use super::format::{ScrubIntent, SlotState};
use super::ids::VolumeId;
use super::{Inner, OpenMode, Pool};
use crate::array::Array;
use crate::error::ArrayError;
use crate::scrub::ScrubReport;

const SECOND_NS: u64 = 1_000_000_000;
/// Progress is looked at this often.
const TICK_NS: u64 = SECOND_NS;
/// How far a rebuild has come is recorded this often.
const REBUILD_CHECKPOINT_NS: u64 = 5 * SECOND_NS;
/// How far a scrub has come is recorded this often.
const SCRUB_CHECKPOINT_NS: u64 = 30 * SECOND_NS;
/// Rates are of the last so many seconds.
const RATE_WINDOW_NS: u64 = 10 * SECOND_NS;

/// What kind of job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// Filling replacements.
    Rebuild,
    /// Checking everything, and making copies and parity agree after a crash.
    Scrub,
    /// Changing a volume's layout; none yet.
    Convert,
    /// Emptying a journal; none yet.
    Destage,
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Rebuild => "rebuild",
            Self::Scrub => "scrub",
            Self::Convert => "convert",
            Self::Destage => "destage",
        })
    }
}

impl FromStr for JobKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kinds = [Self::Rebuild, Self::Scrub, Self::Convert, Self::Destage];
        kinds
            .into_iter()
            .find(|kind| kind.to_string() == text)
            .ok_or_else(|| format!("`{text}` is no job; there are rebuild, scrub, convert and destage"))
    }
}

/// What a scrub of one volume found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubSummary {
    /// The volume.
    pub volume: String,
    /// What was found and done.
    pub report: ScrubReport,
    /// Why it ended early, if it did.
    pub error: Option<String>,
}

/// A job under way.
pub(super) struct Current {
    pub volume: VolumeId,
    /// The slot being rebuilt; `None` for a check.
    pub slot: Option<usize>,
    /// Regions done and in all; for checks.
    regions: Cell<(u64, u64)>,
    samples: RefCell<VecDeque<(u64, f64)>>,
}

impl Current {
    fn new(volume: VolumeId, slot: Option<usize>) -> Rc<Self> {
        Rc::new(Self { volume, slot, regions: Cell::default(), samples: RefCell::default() })
    }

    fn sample(&self, now_ns: u64, bytes: f64) {
        let mut samples = self.samples.borrow_mut();
        samples.push_back((now_ns, bytes));
        while samples.len() > 2 && now_ns - samples[0].0 > RATE_WINDOW_NS {
            samples.pop_front();
        }
    }

    /// Bytes per second of late.
    pub fn rate(&self) -> f64 {
        let samples = self.samples.borrow();
        match (samples.front(), samples.back()) {
            (Some((start, before)), Some((end, after))) if end > start => {
                (after - before) * 1e9 / (end - start) as f64
            }
            _ => 0.0,
        }
    }

    /// Regions checked, and to be checked in all.
    pub fn checked(&self) -> (u64, u64) {
        self.regions.get()
    }
}

#[derive(Default)]
pub(super) struct Lane {
    running: Cell<bool>,
    pub current: RefCell<Option<Rc<Current>>>,
    /// What ended in an error and why: not tried again until jobs are started again.
    stalled: RefCell<BTreeMap<Task, String>>,
}

/// A slot of a volume, or a volume as a whole; `None`: whatever has no volume.
type Task = Option<(VolumeId, Option<usize>)>;

impl Lane {
    fn is_stalled(&self, task: Task) -> bool {
        self.stalled.borrow().contains_key(&task)
    }

    fn stall(&self, task: Task, why: String) {
        self.stalled.borrow_mut().insert(task, why);
    }
}

#[derive(Default)]
pub(crate) struct Jobs {
    started: Cell<bool>,
    pub(super) rebuilding: Lane,
    pub(super) checking: Lane,
    reports: RefCell<Vec<ScrubSummary>>,
    changed: Event,
}

impl Jobs {
    /// Ends when no job is under way.
    pub async fn until_idle(&self) {
        while self.rebuilding.running.get() || self.checking.running.get() {
            self.changed.wait().await;
        }
    }

    /// Ends when no job is at work on the volume.
    pub async fn until_off(&self, volume: VolumeId) {
        let is_on = |lane: &Lane| lane.current.borrow().as_ref().is_some_and(|job| job.volume == volume);
        while is_on(&self.rebuilding) || is_on(&self.checking) {
            self.changed.wait().await;
        }
    }

    /// A slot has a new drive: what stopped its rebuild before does not count any more.
    pub fn forget_stall(&self, volume: VolumeId, slot: usize) {
        self.rebuilding.stalled.borrow_mut().remove(&Some((volume, Some(slot))));
    }

    fn end(&self, lane: &Lane) {
        lane.current.borrow_mut().take();
        self.changed.notify_all();
    }
}

impl Pool {
    /// Begins all jobs that are due and from now on those that become due, spares that take over included. A second call
    /// only tries again what had ended in an error.
    pub fn start_jobs(&self) {
        let jobs = &self.0.jobs;
        jobs.started.set(true);
        for lane in [&jobs.rebuilding, &jobs.checking] {
            lane.stalled.borrow_mut().clear();
        }
        self.0.kick_jobs();
    }

    /// Works on jobs of a kind (and all others that are due) until none of it is left.
    pub async fn wait(&self, kind: JobKind) -> Result<(), PoolError> {
        let inner = &self.0;
        inner.check_changeable()?;
        self.start_jobs();
        let lane = match kind {
            JobKind::Rebuild => &inner.jobs.rebuilding,
            JobKind::Scrub => &inner.jobs.checking,
            JobKind::Convert | JobKind::Destage => return Ok(()),
        };
        loop {
            inner.check_open()?;
            let changed = inner.jobs.changed.wait();
            // A rebuild may make a resync due.
            let more_may_come = kind == JobKind::Scrub && inner.jobs.rebuilding.running.get();
            if !lane.running.get() && !more_may_come {
                let failure = lane.stalled.borrow().values().next().cloned();
                return failure.map_or(Ok(()), |failure| Err(PoolError::Job(failure)));
            }
            changed.await;
        }
    }

    /// Records that everything is to be checked; done when jobs run. One that was begun before goes on.
    pub async fn scrub(&self) -> Result<(), PoolError> {
        let inner = &self.0;
        inner.check_changeable()?;
        inner
            .try_commit(None, |manifest| {
                let volumes: Vec<VolumeId> = manifest.volumes.iter().map(|volume| volume.id).collect();
                if manifest.scrub.is_some() || volumes.is_empty() {
                    return Ok(Change::Nothing(()));
                }
                manifest.scrub = Some(ScrubIntent { volumes, next_region: 0 });
                Ok(Change::Commit(()))
            })
            .await?;
        inner.jobs.reports.borrow_mut().clear();
        inner.kick_jobs();
        Ok(())
    }

    /// What the last scrub found, so far; of volumes checked since the pool was opened.
    pub fn scrub_reports(&self) -> Vec<ScrubSummary> {
        self.0.jobs.reports.borrow().clone()
    }
}

impl Inner {
    /// A drive was excluded, or a spare came: somebody may have to take over.
    pub(super) fn after_exclusion(&self) {
        self.kick_jobs();
    }

    /// Starts the lanes that rest, if jobs run in this pool.
    pub(super) fn kick_jobs(&self) {
        let jobs = &self.jobs;
        if !jobs.started.get() || self.closed.get() || self.mode == OpenMode::ReadOnly {
            return;
        }
        if !jobs.rebuilding.running.replace(true) {
            let inner = self.rc();
            self.context.spawn(async move { inner.run_rebuilds().await });
        }
        if !jobs.checking.running.replace(true) {
            let inner = self.rc();
            self.context.spawn(async move { inner.run_checks().await });
        }
        jobs.changed.notify_all();
    }

    async fn run_rebuilds(&self) {
        let lane = &self.jobs.rebuilding;
        let mut can_heal = true;
        loop {
            if can_heal && let Err(error) = self.heal().await {
                // What stopped one would stop the next.
                lane.stall(None, error.to_string());
                can_heal = false;
            }
            if self.closed.get() {
                break;
            }
            match self.next_rebuild() {
                Some((volume, slot)) => self.run_rebuild(volume, slot).await,
                None => break,
            }
        }
        lane.running.set(false);
        // A resync may have waited for this.
        self.kick_checks();
        self.jobs.changed.notify_all();
    }

    fn kick_checks(&self) {
        if self.closed.get() || self.next_check().is_none() {
            return;
        }
        if !self.jobs.checking.running.replace(true) {
            let inner = self.rc();
            self.context.spawn(async move { inner.run_checks().await });
        }
    }

    /// The rebuild to do next: of the volume with least redundancy left.
    fn next_rebuild(&self) -> Option<(VolumeId, usize)> {
        let lane = &self.jobs.rebuilding;
        let mut due: Vec<(isize, VolumeId, usize)> = Vec::new();
        for (id, array) in self.arrays.borrow().iter().filter(|(_, array)| !array.is_protected()) {
            let slots = array.rebuilding_slots();
            let lacking = array.missing().len() + slots.len();
            let left = array.geometry().fault_tolerance() as isize - lacking as isize;
            let slots = slots.into_iter().filter(|slot| !lane.is_stalled(Some((*id, Some(*slot)))));
            due.extend(slots.map(|slot| (left, *id, slot)));
        }
        due.into_iter().min().map(|(_, volume, slot)| (volume, slot))
    }

    async fn run_rebuild(&self, volume: VolumeId, slot: usize) {
        let Some(array) = self.array(volume) else { return };
        let lane = &self.jobs.rebuilding;
        let current = Current::new(volume, Some(slot));
        *lane.current.borrow_mut() = Some(current.clone());
        self.jobs.changed.notify_all();
        let rebuilt = || array.rebuild_progress(slot).map_or(0.0, |progress| progress.rebuilt_bytes as f64);
        let checkpoint = || self.checkpoint_rebuild(volume, slot);
        let result =
            self.watched(&current, array.rebuild(slot), rebuilt, REBUILD_CHECKPOINT_NS, checkpoint).await;
        let failure = match result {
            Ok(report) => {
                if report.lost_blocks > 0 {
                    self.notice(format!(
                        "{} blocks of 4 KiB could not be rebuilt, since no drive had them any more; reading them is an \
                         error until they are written",
                        report.lost_blocks
                    ));
                }
                // The commit finds that the slot is current now.
                self.commit(None, |_| ()).await.err().map(|error| error.to_string()).or_else(|| {
                    let why = "more blocks are lost than can be recorded, so its new drive does not count as rebuilt";
                    let is_behind = matches!(self.slot_state(volume, slot), Some(SlotState::Rebuilding { .. }));
                    is_behind.then(|| why.to_owned())
                })
            }
            Err(ArrayError::Closed) => None,
            Err(error) => Some(error.to_string()),
        };
        if let Some(failure) = failure {
            let name = self.volume_name(volume);
            let why = format!("the rebuild of volume {name} stopped: {failure}");
            lane.stall(Some((volume, Some(slot))), why);
        }
        self.jobs.end(lane);
    }

    fn volume_name(&self, volume: VolumeId) -> String {
        let manifest = self.manifest.borrow();
        manifest.volume_by_id(volume).map_or_else(|| volume.to_string(), |volume| volume.name.clone())
    }

    fn slot_state(&self, volume: VolumeId, slot: usize) -> Option<SlotState> {
        let manifest = self.manifest.borrow();
        manifest.volume_by_id(volume).and_then(|volume| volume.slots.get(slot)).map(|slot| slot.state)
    }

    /// Runs `work` to its end; meanwhile measures how fast `bytes` grows and every `interval_ns` does `checkpoint`.
    async fn watched<T, C: Future<Output = Result<(), PoolError>>>(
        &self,
        current: &Current,
        work: impl Future<Output = T>,
        bytes: impl Fn() -> f64,
        interval_ns: u64,
        checkpoint: impl Fn() -> C,
    ) -> T {
        let (done, ended) = (Cell::new(false), Event::new());
        current.sample(self.context.now_ns(), bytes());
        let working = async {
            let result = work.await;
            done.set(true);
            ended.notify_all();
            result
        };
        let watching = async {
            let mut next_ns = self.context.now_ns() + interval_ns;
            while !done.get() {
                let end = pin!(ended.wait());
                let _ = self.context.time_limit_ns(TICK_NS, end).await;
                let now_ns = self.context.now_ns();
                if done.get() {
                    break;
                }
                current.sample(now_ns, bytes());
                if now_ns >= next_ns {
                    // Not recorded now means recorded next time, or done again.
                    let _ = checkpoint().await;
                    next_ns = self.context.now_ns() + interval_ns;
                }
            }
        };
        join(working, watching).await.0
    }

    /// Records how far a slot's rebuild has come.
    async fn checkpoint_rebuild(&self, volume: VolumeId, slot: usize) -> Result<(), PoolError> {
        let Some(array) = self.array(volume) else { return Ok(()) };
        let drive = self.manifest.borrow().volume_by_id(volume).map(|volume| volume.slots[slot].drive);
        let Some(next_region) = array.checkpoint_rebuild(slot).await? else { return Ok(()) };
        self.try_commit(None, move |manifest| {
            let Some(volume) = manifest.volume_by_id_mut(volume) else { return Ok(Change::Nothing(())) };
            let mut all_lost = volume.clone();
            all_lost.set_lost(&array.lost_blocks());
            let old = volume.slots[slot];
            let is_same = Some(old.drive) == drive && matches!(old.state, SlotState::Rebuilding { .. });
            if !is_same || all_lost.lost != volume.lost {
                return Ok(Change::Nothing(()));
            }
            volume.slots[slot].state = SlotState::Rebuilding { next_region };
            Ok(if volume.slots[slot] == old { Change::Nothing(()) } else { Change::Commit(()) })
        })
        .await
    }

    /// As [`Self::checkpoint_rebuild`] for all of them.
    pub(super) async fn checkpoint_rebuilds(&self) -> Result<(), PoolError> {
        let arrays: Vec<(VolumeId, Array)> =
            self.arrays.borrow().iter().map(|(id, array)| (*id, array.clone())).collect();
        for (volume, array) in arrays {
            for slot in array.rebuilding_slots() {
                self.checkpoint_rebuild(volume, slot).await?;
            }
        }
        Ok(())
    }

    /// The check to do next: a resync before a scrub.
    fn next_check(&self) -> Option<(VolumeId, bool)> {
        let lane = &self.jobs.checking;
        let arrays = self.arrays.borrow();
        let due =
            arrays.iter().find(|(id, array)| is_resync_due(array) && !lane.is_stalled(Some((**id, None))));
        if let Some((id, _)) = due {
            return Some((*id, false));
        }
        let manifest = self.manifest.borrow();
        let scrub = manifest.scrub.as_ref().filter(|_| !lane.is_stalled(None))?;
        scrub.volumes.first().map(|volume| (*volume, true))
    }

    async fn run_checks(&self) {
        let lane = &self.jobs.checking;
        while !self.closed.get() {
            match self.next_check() {
                Some((volume, true)) => self.run_scrub(volume).await,
                Some((volume, false)) => self.run_resync(volume).await,
                None => break,
            }
        }
        lane.running.set(false);
        self.jobs.changed.notify_all();
    }

    async fn run_resync(&self, volume: VolumeId) {
        let Some(array) = self.array(volume) else { return };
        let lane = &self.jobs.checking;
        let current = Current::new(volume, None);
        *lane.current.borrow_mut() = Some(current.clone());
        self.jobs.changed.notify_all();
        let seen = current.clone();
        let progress = move |done, total| seen.regions.set((done, total));
        let bytes = || bytes_checked(&array, &current);
        let nothing = || std::future::ready(Ok(()));
        let work = array.resync(&progress);
        if let Err(error) = self.watched(&current, work, bytes, SCRUB_CHECKPOINT_NS, nothing).await
            && !matches!(error, ArrayError::Closed)
        {
            let name = self.volume_name(volume);
            lane.stall(Some((volume, None)), format!("the resync of volume {name} stopped: {error}"));
        }
        self.jobs.end(lane);
    }

    async fn run_scrub(&self, volume: VolumeId) {
        let lane = &self.jobs.checking;
        let current = Current::new(volume, None);
        *lane.current.borrow_mut() = Some(current.clone());
        self.jobs.changed.notify_all();
        let name = self.volume_name(volume);
        let result = match self.array(volume) {
            None => Err("it cannot be read".to_owned()),
            Some(array) => {
                let first = self.manifest.borrow().scrub.as_ref().map_or(0, |scrub| scrub.next_region);
                let seen = current.clone();
                let progress = move |done, total| seen.regions.set((done, total));
                let bytes = || bytes_checked(&array, &current);
                let checkpoint = || self.checkpoint_scrub(volume, current.regions.get().0);
                let work = array.scrub_from(first, &progress);
                match self.watched(&current, work, bytes, SCRUB_CHECKPOINT_NS, checkpoint).await {
                    Ok(report) => Ok(report),
                    Err(ArrayError::Closed) => {
                        if self.array(volume).is_some() {
                            // The pool is being closed; its last commit is still to come.
                            let _ = self.checkpoint_scrub(volume, current.regions.get().0).await;
                        }
                        return self.jobs.end(lane);
                    }
                    Err(error) => Err(error.to_string()),
                }
            }
        };
        let error = result.as_ref().err().cloned();
        let summary = ScrubSummary { volume: name, report: result.unwrap_or_default(), error };
        self.jobs.reports.borrow_mut().push(summary);
        let ended = self
            .commit(None, move |manifest| {
                let Some(scrub) = &mut manifest.scrub else { return };
                scrub.volumes.retain(|other| *other != volume);
                scrub.next_region = 0;
                if scrub.volumes.is_empty() {
                    manifest.scrub = None;
                }
            })
            .await;
        if let Err(error) = ended {
            lane.stall(None, format!("the end of a scrub could not be recorded: {error}"));
        }
        self.jobs.end(lane);
    }

    async fn checkpoint_scrub(&self, volume: VolumeId, next_region: u64) -> Result<(), PoolError> {
        self.try_commit(None, move |manifest| match &mut manifest.scrub {
            Some(scrub) if scrub.volumes.first() == Some(&volume) && next_region > scrub.next_region => {
                scrub.next_region = next_region;
                Ok(Change::Commit(()))
            }
            _ => Ok(Change::Nothing(())),
        })
        .await
    }
}

/// Whether a crash left something to compare, and all of it is there.
pub(super) fn is_resync_due(array: &Array) -> bool {
    let is_whole = array.missing().is_empty() && array.rebuilding_slots().is_empty();
    array.needs_resync() && is_whole && !array.is_protected()
}

/// Bytes of the volume that a check has passed, as far as they were ever written.
fn bytes_checked(array: &Array, current: &Current) -> f64 {
    current.regions.get().0 as f64 * written_per_region(array)
}

/// Bytes ever written in a region of the volume, on average.
pub(super) fn written_per_region(array: &Array) -> f64 {
    array.written_bytes() as f64 / array.0.regions.shape.regions.max(1) as f64
}
