//! Checks of volumes: the resync after a crash, and scrubs on demand or on schedule.
//!
//! The progress of a scrub is recorded, so that the next process continues it. With a scrub rate,
//! the scrub sleeps between regions so that it reads no more than that. A scheduled scrub begins
//! when the interval has passed since the end of the last one, by the clock that dates events.
//! Faults expected: drives fail during a scrub (regions with a missing member are not compared),
//! the pool is closed, a clock that jumps.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use crate::error::PoolError;
use crate::jobs::{Parts, Progress, SECOND_NS, ScrubSummary, is_resync_due, watched};
use crate::manifest::care::ScrubRecord;
use crate::manifest::events::EventKind;
use crate::manifest::format::{Patrol, ScrubIntent};
use crate::manifest::ids::{Id, VolumeId};
use crate::superblock::commit::Change;
use crate::volume::part_array::PartArray;
use crate::{Inner, Pool};
use stripewise_array::ArrayError;
use stripewise_array::ScrubReport;
use stripewise_array::{Array, ArrayHandle};

/// Maximum delay before findings are recorded: a repaired block would not be found again.
const FINDINGS_DELAY_NS: u64 = SECOND_NS;
/// Maximum interval between looks at the clock, because it may jump.
const CLOCK_INTERVAL_S: u64 = 600;
/// Lowest scrub rate that can be set, bytes per second.
const LEAST_RATE: u64 = 1 << 20;

impl Pool {
    /// Records that all volumes are to be scrubbed; jobs do the work. A scrub that was begun before
    /// continues.
    pub async fn scrub(&self) -> Result<(), PoolError> {
        let inner = &self.0;
        inner.check_changeable()?;
        inner.begin_scrub().await
    }

    /// Sets the scrub rate and schedule. At most `rate_bytes_per_s` are read from all drives of a
    /// volume together (`None`: limited by the rebuild priority only), and a scrub begins
    /// `interval_s` after the last one ended (`None`: only on demand).
    pub async fn set_patrol(
        &self,
        rate_bytes_per_s: Option<u64>,
        interval_s: Option<u64>,
    ) -> Result<(), PoolError> {
        let inner = &self.0;
        inner.check_changeable()?;
        if rate_bytes_per_s.is_some_and(|rate| rate < LEAST_RATE) {
            return Err(PoolError::BadSetting("the scrub rate must be at least 1 MiB per second".to_owned()));
        }
        if interval_s.is_some_and(|interval| interval < 60) {
            return Err(PoolError::BadSetting("the scrub interval must be at least one minute".to_owned()));
        }
        let now_s = inner.news.unix_ms() / 1000;
        inner
            .commit(None, move |manifest| {
                let last_unix_s = manifest.patrol.last_unix_s.or(interval_s.map(|_| now_s));
                manifest.patrol = Patrol { rate_bytes_per_s, interval_s, last_unix_s };
            })
            .await?;
        inner.start_schedule();
        inner.jobs.changed.notify_all();
        Ok(())
    }

    /// Scrub rate in bytes per second and interval in seconds, as for [`Self::set_patrol`], and the
    /// time at which the last scrub ended, seconds since 1970.
    pub fn patrol(&self) -> (Option<u64>, Option<u64>, Option<u64>) {
        let patrol = self.0.manifest.borrow().patrol;
        (patrol.rate_bytes_per_s, patrol.interval_s, patrol.last_unix_s)
    }
}

impl Inner {
    async fn begin_scrub(&self) -> Result<(), PoolError> {
        let now_s = self.news.unix_ms() / 1000;
        let begun = self
            .try_commit(None, move |manifest| {
                let volumes: Vec<VolumeId> = manifest.volumes.iter().map(|volume| volume.id).collect();
                if manifest.scrub.is_some() || volumes.is_empty() {
                    return Ok(Change::Nothing(false));
                }
                let (found, done) = (ScrubRecord::default(), Vec::new());
                manifest.events.push(now_s * 1000, EventKind::Scrub, "a scrub of all volumes began");
                manifest.scrub =
                    Some(ScrubIntent { volumes, next_region: 0, began_unix_s: Some(now_s), found, done });
                Ok(Change::Commit(true))
            })
            .await?;
        if begun {
            self.jobs.reports.borrow_mut().clear();
        }
        self.kick_jobs();
        Ok(())
    }

    /// Starts the task that begins scheduled scrubs, if a schedule is set and jobs run.
    pub(crate) fn start_schedule(&self) {
        let wanted = self.manifest.borrow().patrol.interval_s.is_some();
        if !wanted || self.lifecycle.is_closed() || self.lifecycle.is_read_only() || !self.jobs.is_started() {
            return;
        }
        if !self.jobs.scheduling.replace(true) {
            let me = self.me.clone();
            self.context.spawn(async move { keep_schedule(me).await });
        }
    }

    /// Seconds until a scrub is due; `None` without a schedule.
    fn next_scrub_s(&self) -> Option<u64> {
        let patrol = self.manifest.borrow().patrol;
        let now_s = self.news.unix_ms() / 1000;
        let last_s = patrol.last_unix_s.unwrap_or(0).min(now_s);
        Some((last_s.saturating_add(patrol.interval_s?)).saturating_sub(now_s))
    }

    /// The next check to run: its part, and whether it is a scrub (`true`) or a resync. Resyncs
    /// come first.
    pub(crate) fn next_check(&self) -> Option<(Id, bool)> {
        let lane = &self.jobs.checking;
        {
            let is_due = |(part, array): &(Id, ArrayHandle)| {
                array.visit(is_resync_due) && !lane.is_stalled(Some((*part, None)))
            };
            if let Some((part, _)) = self.volumes.parts().iter().find(|part| is_due(part)) {
                return Some((*part, false));
            }
        }
        let manifest = self.manifest.borrow();
        let scrub = manifest.scrub.as_ref().filter(|_| !lane.is_stalled(None))?;
        let volume = scrub.volumes.first()?;
        // Both parts of a volume in conversion are checked; the intent names the volume.
        let part = manifest.volume_by_id(*volume).and_then(|volume| volume.parts.first());
        Some((part.map_or(*volume, |part| part.id), true))
    }

    /// Begins the check of an array, with the progress that the status shows.
    fn begin_check(&self, part: Id, written_bytes: u64) -> (Parts, Rc<Progress>) {
        let progress: Rc<Progress> = Rc::default();
        progress.total_bytes.set(written_bytes as f64);
        let parts: Parts = [(part, progress.clone())].into();
        self.jobs.begin(&self.jobs.checking, parts.clone());
        (parts, progress)
    }

    pub(crate) async fn run_resync(&self, part: Id) {
        let Some(array) = self.volumes.array(part) else { return };
        let lane = &self.jobs.checking;
        let (parts, seen) = self.begin_check(part, array.visit(Array::written_bytes));
        let (all, done_bytes) = (seen.total_bytes.get(), seen.done_bytes.clone());
        let progress = move |done: u64, total: u64| done_bytes.set(all * done as f64 / total.max(1) as f64);
        let nothing = || std::future::ready(Ok(()));
        let work = array.call(async move |array| array.resync(&progress).await);
        if let Err(error) =
            watched(&self.context, &parts, work, self.tuning().scrub_checkpoint_ns, nothing).await
            && !matches!(error, ArrayError::Closed)
        {
            let name = self.manifest.borrow().volume_of(part).1;
            lane.stall(Some((part, None)), format!("the resync of volume {name} stopped: {error}"));
        }
        self.jobs.end(lane);
    }

    pub(crate) async fn run_scrub(&self, first_part: Id) {
        let lane = &self.jobs.checking;
        let (volume, name) = self.manifest.borrow().volume_of(first_part);
        let parts: Vec<Id> = {
            let manifest = self.manifest.borrow();
            manifest
                .volume_by_id(volume)
                .map_or_else(Vec::new, |volume| volume.parts.iter().map(|p| p.id).collect())
        };
        let scrub = ScrubOfVolume {
            pool: self,
            volume,
            found: RefCell::new(self.findings_so_far(volume)),
            has_findings: Cell::new(false),
            recorded_ns: Cell::new(self.context.now_ns()),
        };
        let mut error = None;
        // Regions are numbered through all parts.
        let mut passed = 0;
        for part in parts {
            if !self.manifest.borrow().has_part(part) {
                // The former layout of a converted volume: all its data is in the other part now.
                continue;
            }
            let Some(array) = self.volumes.array_or_log(part) else {
                error = Some("it cannot be read".to_owned());
                break;
            };
            let regions = array.regions();
            let (parts, progress) = self.begin_check(part, array.written_bytes());
            let next_region = self.manifest.borrow().scrub.as_ref().map_or(0, |scrub| scrub.next_region);
            let first = next_region.saturating_sub(passed).min(regions);
            let at = Cell::new(first);
            let interval_ns = self.tuning().scrub_checkpoint_ns;
            let work = scrub.check(&array, &at, &progress);
            let checkpoint = async || scrub.checkpoint(&array, passed + at.get(), interval_ns).await;
            match watched(&self.context, &parts, work, FINDINGS_DELAY_NS.min(interval_ns), checkpoint).await {
                Ok(()) => {}
                Err(ArrayError::Closed) => {
                    if self.volumes.array_or_log(part).is_some() {
                        // The pool is being closed; its last commit has not been made yet.
                        let _ = scrub.record(&array, passed + at.get()).await;
                    }
                    return self.jobs.end(lane);
                }
                // The part was removed during its check. Its remaining data is in the other part,
                // which is checked from its beginning.
                Err(_) if !self.manifest.borrow().has_part(part) => continue,
                Err(failure) => {
                    error = Some(failure.to_string());
                    break;
                }
            }
            passed += regions;
        }
        let report = scrub.found.into_inner();
        self.end_scrub(volume, ScrubSummary { volume: name, report, error }).await;
        self.jobs.end(lane);
    }

    /// Findings so far of an interrupted scrub for this volume. Restores the reports of the volumes
    /// that it has finished.
    fn findings_so_far(&self, volume: VolumeId) -> ScrubReport {
        let manifest = self.manifest.borrow();
        let Some(scrub) = &manifest.scrub else { return ScrubReport::default() };
        let mut reports = self.jobs.reports.borrow_mut();
        if reports.len() < scrub.done.len() {
            *reports = scrub.done.iter().map(|record| record.summary(&manifest)).collect();
        }
        match scrub.volumes.first() == Some(&volume) {
            true => scrub.found.summary(&manifest).report,
            false => ScrubReport::default(),
        }
    }

    async fn end_scrub(&self, volume: VolumeId, summary: ScrubSummary) {
        let now = self.news.unix_ms();
        let text = in_words(&summary);
        let record = ScrubRecord::of(&summary, &self.manifest.borrow());
        self.jobs.reports.borrow_mut().push(summary);
        let counted = self.drives.counted_wrong_blocks();
        let ended = self
            .commit(None, move |manifest| {
                let Some(scrub) = &mut manifest.scrub else { return };
                scrub.volumes.retain(|other| *other != volume);
                (scrub.next_region, scrub.found) = (0, ScrubRecord::default());
                scrub.done.push(record);
                manifest.events.push(now, EventKind::Scrub, &text);
                manifest.end_scrub_when_done(now / 1000, counted);
            })
            .await;
        if let Err(error) = ended {
            self.jobs.checking.stall(None, format!("the end of a scrub could not be recorded: {error}"));
        }
    }
}

/// The scrub of one volume.
struct ScrubOfVolume<'a> {
    pool: &'a Inner,
    volume: VolumeId,
    found: RefCell<ScrubReport>,
    /// There are findings that are not recorded yet.
    has_findings: Cell<bool>,
    recorded_ns: Cell<u64>,
}

impl ScrubOfVolume<'_> {
    /// Checks an array or a log from region `at` on, no faster than the scrub rate.
    async fn check(&self, array: &PartArray, at: &Cell<u64>, progress: &Progress) -> Result<(), ArrayError> {
        let (pool, regions) = (self.pool, array.regions());
        let per_region = progress.total_bytes.get() / regions.max(1) as f64;
        progress.done_bytes.set(at.get() as f64 * per_region);
        let mut pace = Pace::of(pool);
        while at.get() < regions {
            pace.wait(pool).await?;
            if pool.lifecycle.is_closed() {
                return Err(ArrayError::Closed);
            }
            // Other jobs may have begun or ended.
            pool.set_background_share();
            let (found, scrubbed) = array.compare_region(at.get(), true).await;
            self.found.borrow_mut().add(&found);
            if found.found_something() {
                self.has_findings.set(true);
            }
            scrubbed?;
            at.set(at.get() + 1);
            progress.add(per_region);
            pace.charge(pool, found.checked_bytes);
        }
        array.release_records().await
    }

    /// Records the progress if there are findings, or if the last record is old enough.
    async fn checkpoint(
        &self,
        array: &PartArray,
        next_region: u64,
        interval_ns: u64,
    ) -> Result<(), PoolError> {
        let now_ns = self.pool.context.now_ns();
        if !self.has_findings.replace(false) && now_ns < self.recorded_ns.get() + interval_ns {
            return Ok(());
        }
        self.recorded_ns.set(now_ns);
        self.record(array, next_region).await
    }

    /// Records the progress, after the checksums recorded for the blocks passed are durable: these
    /// blocks are not checked again.
    async fn record(&self, array: &PartArray, next_region: u64) -> Result<(), PoolError> {
        // Taken at the same moment: the findings are from regions below the recorded position.
        let (volume, report) = (self.volume, self.found.borrow().clone());
        array.release_records().await?;
        let summary = ScrubSummary { volume: String::new(), report, error: None };
        let found = ScrubRecord::of(&summary, &self.pool.manifest.borrow());
        self.pool
            .try_commit(None, move |manifest| match &mut manifest.scrub {
                Some(scrub)
                    if scrub.volumes.first() == Some(&volume)
                        && next_region >= scrub.next_region
                        && (next_region, &found) != (scrub.next_region, &scrub.found) =>
                {
                    (scrub.next_region, scrub.found) = (next_region, found);
                    Ok(Change::Commit(()))
                }
                _ => Ok(Change::Nothing(())),
            })
            .await
    }
}

/// Keeps reads to the scrub rate, if one is set.
pub(crate) struct Pace {
    /// Earliest time of the next read.
    next_ns: u64,
}

impl Pace {
    pub(crate) fn of(pool: &Inner) -> Self {
        Self { next_ns: pool.context.now_ns() }
    }

    /// Waits until the next read may begin; fails if the pool is closed by then.
    pub(crate) async fn wait(&self, pool: &Inner) -> Result<(), ArrayError> {
        let has_rate = || pool.manifest.borrow().patrol.rate_bytes_per_s.is_some();
        while has_rate() && pool.context.now_ns() < self.next_ns {
            // Short sleeps, because the pool may be closed in between.
            let sleep_ns = (self.next_ns - pool.context.now_ns()).min(SECOND_NS);
            pool.context.sleep_ns(sleep_ns).await;
            if pool.lifecycle.is_closed() {
                return Err(ArrayError::Closed);
            }
        }
        Ok(())
    }

    /// Charges bytes that were read.
    pub(crate) fn charge(&mut self, pool: &Inner, bytes: u64) {
        let Some(rate) = pool.manifest.borrow().patrol.rate_bytes_per_s else { return };
        let cost_ns = (bytes as f64 * 1e9 / rate as f64) as u64;
        self.next_ns = self.next_ns.max(pool.context.now_ns().saturating_sub(SECOND_NS)) + cost_ns;
    }
}

async fn keep_schedule(me: Weak<Inner>) {
    loop {
        let (wait_s, context) = {
            let Some(pool) = me.upgrade() else { return };
            let wait_s = pool.next_scrub_s().filter(|_| !pool.lifecycle.is_closed());
            let Some(wait_s) = wait_s else {
                pool.jobs.scheduling.set(false);
                return;
            };
            if wait_s == 0 && pool.begin_scrub().await.is_err() {
                // The obstacle may be gone the next time.
                (CLOCK_INTERVAL_S, pool.context.clone())
            } else {
                (wait_s.clamp(10, CLOCK_INTERVAL_S), pool.context.clone())
            }
        };
        context.sleep_ns(wait_s * SECOND_NS).await;
    }
}

fn in_words(summary: &ScrubSummary) -> String {
    let ScrubSummary { volume, report, error } = summary;
    let mut found: Vec<String> = Vec::new();
    for (drive, blocks) in &report.blamed {
        found.push(format!("{blocks} wrong blocks on {drive}"));
    }
    if report.unattributed_blocks > 0 {
        found.push(format!("{} mismatched blocks", report.unattributed_blocks));
    }
    if report.unreadable_strips > 0 {
        found.push(format!("{} unreadable strips", report.unreadable_strips));
    }
    let found = if found.is_empty() { "nothing wrong".to_owned() } else { found.join(", ") };
    let mib = report.checked_bytes >> 20;
    match error {
        None => format!("volume {volume} was scrubbed, {mib} MiB: {found}"),
        Some(error) => format!("scrub of volume {volume} ended early after {mib} MiB ({error}): {found}"),
    }
}
