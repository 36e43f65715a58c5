//! Running a pool's jobs in the foreground: progress and results.
//!
//! Expected faults: an interrupt (the pool is closed cleanly, and the next process to open it
//! resumes the jobs), jobs that cannot proceed.

use std::pin::pin;

use futures_util::future::{Either, select};
use serde::Serialize;
use stripewise_pool::{JobKind, ScrubSummary};

use crate::control::Control;
use crate::environment::JobStep;
use crate::failure::{Failure, Result, pool_failure};
use crate::messages::report::PoolReport;
use crate::pools::session::Session;

const LOOK_NS: u64 = 250_000_000;

/// Result of finished jobs.
#[derive(Serialize)]
pub struct Done {
    /// Kind of the jobs.
    #[serde(skip)]
    pub kind: JobKind,
    /// True if there was anything to do.
    pub worked: bool,
    /// True if only a crash resync was pending, and no scrub.
    #[serde(skip)]
    pub only_resync: bool,
    /// Results of a scrub, by volume.
    pub scrubs: Vec<ScrubbedVolume>,
    /// The pool after the jobs.
    pub pools: Vec<PoolReport>,
}

/// Result of scrubbing a volume.
#[derive(Serialize)]
pub struct ScrubbedVolume {
    /// Volume name.
    pub volume: String,
    /// Bytes read and compared.
    pub checked_bytes: u64,
    /// Drives with wrong blocks, all of which were repaired.
    pub repaired: Vec<Repaired>,
    /// Mismatched blocks of 4 KiB without a known correct copy; made consistent.
    pub unattributed_blocks: u64,
    /// Strips that could be neither read nor reconstructed.
    pub unreadable_strips: u64,
    /// Regions that could not be compared, as they have no redundancy at present.
    pub regions_without_redundancy: u64,
    /// Reason that the scrub ended early, if it did.
    pub error: Option<String>,
}

/// Wrong blocks of a drive.
#[derive(Serialize)]
pub struct Repaired {
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
    Ok(Done { kind, worked, only_resync, scrubs, pools: vec![report] })
}

fn scrubbed(summary: ScrubSummary, pool: &PoolReport) -> ScrubbedVolume {
    // Wrong blocks are attributed to drive labels, which are paths.
    let repaired = summary.report.blamed.iter().map(|(path, blocks)| Repaired {
        drive: pool
            .drives
            .iter()
            .find(|drive| drive.path == *path)
            .map_or_else(String::new, |drive| drive.id.clone()),
        path: path.clone(),
        blocks: *blocks,
    });
    ScrubbedVolume {
        repaired: repaired.collect(),
        volume: summary.volume,
        checked_bytes: summary.report.checked_bytes,
        unattributed_blocks: summary.report.unattributed_blocks,
        unreadable_strips: summary.report.unreadable_strips,
        regions_without_redundancy: summary.report.regions_without_redundancy,
        error: summary.error,
    }
}
