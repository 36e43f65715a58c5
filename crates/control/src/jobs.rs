//! Running a pool's jobs in the foreground: progress and results.
//!
//! Expected faults: an interrupt (the pool is closed cleanly, and the next process to open it
//! resumes the jobs), jobs that cannot proceed.

use std::cell::RefCell;
use std::pin::pin;

use futures_util::future::{Either, select};
use serde::Serialize;
use stripewise_pool::{Activity, JobKind, PlaceFault, ScrubSummary};
use utoipa::ToSchema;

use crate::control::Control;
use crate::environment::JobStep;
use crate::failure::{Failure, Result, pool_failure};
use crate::messages::report::{ActivityReport, PoolReport};
use crate::pools::session::Session;

const LOOK_NS: u64 = 250_000_000;

/// Result of finished jobs.
#[derive(Serialize, ToSchema)]
#[schema(as = JobsDone)]
pub struct Done {
    /// Kind of the jobs.
    #[serde(skip)]
    pub kind: JobKind,
    /// True if there was anything to do.
    pub worked: bool,
    /// True if only a crash resync was pending, and no scrub.
    #[serde(skip)]
    pub only_resync: bool,
    /// True if a check looked for errors and repaired none.
    #[serde(skip)]
    pub only_checked: bool,
    /// Results of a scrub, by volume.
    pub scrubs: Vec<ScrubbedVolume>,
    /// The pool after the jobs.
    pub pools: Vec<PoolReport>,
}

/// Result of scrubbing a volume.
#[derive(Serialize, ToSchema)]
pub struct ScrubbedVolume {
    /// Volume name.
    pub volume: String,
    /// Bytes read and compared.
    pub checked_bytes: u64,
    /// Drives with wrong blocks, all of which were repaired.
    pub repaired: Vec<WrongBlocks>,
    /// Drives with wrong blocks that a check found, and left as they are.
    pub wrong: Vec<WrongBlocks>,
    /// Places that a check found wrong, in order.
    pub places: Vec<PlaceReport>,
    /// Number of further places, which are not listed.
    pub further_places: u64,
    /// Mismatched blocks of 4 KiB without a known correct copy; made consistent.
    pub unattributed_blocks: u64,
    /// Strips that could be neither read nor reconstructed.
    pub unreadable_strips: u64,
    /// Regions that could not be compared, as they have no redundancy at present.
    pub regions_without_redundancy: u64,
    /// Reason that the scrub ended early, if it did.
    pub error: Option<String>,
}

impl ScrubbedVolume {
    /// True if anything was found wrong.
    pub fn found_something(&self) -> bool {
        let are_counted = self.unattributed_blocks + self.unreadable_strips + self.further_places > 0;
        let lists = [self.repaired.len(), self.wrong.len(), self.places.len()];
        are_counted || lists != [0; 3] || self.error.is_some()
    }
}

/// A place that a check found wrong.
#[derive(Serialize, ToSchema)]
pub struct PlaceReport {
    /// Offset in the volume; of parity, that of the first block that it protects.
    pub offset_bytes: u64,
    /// Length.
    pub length_bytes: u64,
    /// Fault.
    pub fault: Fault,
    /// Drives that may be wrong: several if the layout cannot identify the one.
    pub drives: Vec<FaultyDrive>,
}

/// Fault at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The drive cannot read it.
    Unreadable,
    /// The data does not match its checksum.
    Checksum,
    /// Copies, or data and parity, disagree.
    Mismatch,
    /// A copy of the checksums themselves is damaged or outdated.
    ChecksumPage,
}

impl From<PlaceFault> for Fault {
    fn from(fault: PlaceFault) -> Self {
        match fault {
            PlaceFault::Unreadable => Self::Unreadable,
            PlaceFault::Checksum => Self::Checksum,
            PlaceFault::Mismatch => Self::Mismatch,
            PlaceFault::ChecksumPage => Self::ChecksumPage,
        }
    }
}

/// A drive at a place that was found wrong.
#[derive(Serialize, ToSchema)]
pub struct FaultyDrive {
    /// Drive identity.
    pub id: String,
    /// Path of the drive.
    pub path: String,
}

/// Wrong blocks of a drive.
#[derive(Serialize, ToSchema)]
pub struct WrongBlocks {
    /// Drive identity.
    pub drive: String,
    /// Path of the drive.
    pub path: String,
    /// Number of blocks of 4 KiB.
    pub blocks: u64,
}

/// Runs jobs until none of this kind is left. Several times a second it reports the progress of the
/// running job.
pub async fn work(control: &Control, session: &Session, kind: JobKind) -> Result<Done> {
    let mut report_step = control.job_steps();
    control.let_others_go_on();
    session.start_jobs_below();
    let pool = &session.pool;
    let name = pool.name();
    let context = session.executor().context();
    let was_due = session.report().activity.iter().any(|job| job.kind == kind.to_string());
    let before = pool.generation();
    let only_resync = kind == JobKind::Scrub && was_due && !pool.is_scrub_due();
    let interrupted = control.interrupted()?;
    let looking = async {
        loop {
            let report = session.report();
            let ours = || report.activity.iter().filter(|job| job.kind == kind.to_string());
            if let Some(job) = ours().find(|job| job.mb_per_s > 0.0).or_else(|| ours().next()) {
                report_step(&JobStep { kind, pool: &name, job });
            }
            context.sleep_ns(LOOK_NS).await;
        }
    };
    let waiting = async {
        let (interrupted, looking) = (pin!(interrupted), pin!(looking));
        let stopped = select(interrupted, looking);
        match select(pin!(pool.wait(kind)), stopped).await {
            Either::Left((result, _)) => Some(result),
            Either::Right(_) => None,
        }
    };
    let result = waiting.await;
    match result {
        Some(result) => result
            .map_err(|error| pool_failure(format!("cannot finish the {kind} of pool `{name}`"), &error))?,
        None => {
            let report = session.report();
            let so_far: Vec<String> = report
                .activity
                .iter()
                .filter(|job| job.kind == kind.to_string())
                .map(|job| format!("{} {:.1} % done", job.volume, job.percent))
                .collect();
            let so_far = if so_far.is_empty() { String::new() } else { format!(" ({})", so_far.join(", ")) };
            return Err(Failure::new(format!(
                "interrupted; the {kind} of pool `{name}` is not done{so_far}"
            ))
            .hint(format!("`stripewise pool wait {name} {kind}` resumes it")));
        }
    }
    let report = session.report();
    let scrubs: Vec<ScrubbedVolume> =
        pool.scrub_reports().into_iter().map(|summary| scrubbed(summary, &report)).collect();
    // Work that became due during the wait, such as a spare activation, shows as a commit.
    let worked = was_due || pool.generation() != before || !scrubs.is_empty();
    Ok(Done { kind, worked, only_resync, only_checked: false, scrubs, pools: vec![report] })
}

/// Checks all volumes of a pool and writes nothing. Several times a second it reports the progress.
pub async fn check(control: &Control, session: &Session) -> Result<Done> {
    let pool = &session.pool;
    let name = pool.name();
    if !session.is_lent() {
        // Journals that a crash left are replayed in memory only.
        pool.recover_in_memory().await;
    }
    let mut report_step = control.job_steps();
    let context = session.executor().context();
    let last: RefCell<Option<Activity>> = RefCell::default();
    let looking = async {
        loop {
            let job = last.borrow().as_ref().map(ActivityReport::from);
            if let Some(job) = &job {
                report_step(&JobStep { kind: JobKind::Scrub, pool: &name, job });
            }
            context.sleep_ns(LOOK_NS).await;
        }
    };
    let looking = pin!(looking);
    let stopped = select(looking, control.interrupted()?);
    let on_progress = |activity| *last.borrow_mut() = Some(activity);
    let checked = match select(pin!(pool.check(&on_progress)), pin!(stopped)).await {
        Either::Left((checked, _)) => checked,
        Either::Right(_) => return Err(Failure::new(format!("interrupted; pool `{name}` was not checked"))),
    };
    let checked = checked.map_err(|error| pool_failure(format!("cannot check pool `{name}`"), &error))?;
    let report = session.report();
    let scrubs: Vec<ScrubbedVolume> =
        checked.into_iter().map(|summary| checked_volume(summary, &report)).collect();
    Ok(Done {
        kind: JobKind::Scrub,
        worked: true,
        only_resync: false,
        only_checked: true,
        scrubs,
        pools: vec![report],
    })
}

fn checked_volume(summary: ScrubSummary, pool: &PoolReport) -> ScrubbedVolume {
    let mut checked = scrubbed(summary, pool);
    checked.wrong = std::mem::take(&mut checked.repaired);
    checked
}

fn scrubbed(summary: ScrubSummary, pool: &PoolReport) -> ScrubbedVolume {
    // Wrong blocks are attributed to drive labels, which are paths.
    let id_of = |path: &String| {
        let drive = pool.drives.iter().find(|drive| drive.path == *path);
        drive.map_or_else(String::new, |drive| drive.id.clone())
    };
    let repaired = summary.report.blamed.iter().map(|(path, blocks)| WrongBlocks {
        drive: id_of(path),
        path: path.clone(),
        blocks: *blocks,
    });
    let places = summary.report.places.iter().map(|place| PlaceReport {
        offset_bytes: place.offset_bytes,
        length_bytes: place.length_bytes,
        fault: place.fault.into(),
        drives: place.drives.iter().map(|path| FaultyDrive { id: id_of(path), path: path.clone() }).collect(),
    });
    ScrubbedVolume {
        repaired: repaired.collect(),
        wrong: Vec::new(),
        places: places.collect(),
        further_places: summary.report.further_places,
        volume: summary.volume,
        checked_bytes: summary.report.checked_bytes,
        unattributed_blocks: summary.report.unattributed_blocks,
        unreadable_strips: summary.report.unreadable_strips,
        regions_without_redundancy: summary.report.regions_without_redundancy,
        error: summary.error,
    }
}
