//! Work on a pool's jobs in the foreground, how it goes on, and what came of it.
//!
//! Expected faults: an interrupt (the pool is closed in order, and the next process to open it goes
//! on), jobs that cannot go on.

use std::pin::pin;

use futures_util::future::{Either, select};
use serde::Serialize;
use stripewise_engine::pool::{JobKind, ScrubSummary};

use crate::control::Control;
use crate::environment::JobStep;
use crate::failure::{Failure, Result, pool_failure};
use crate::messages::report::PoolReport;
use crate::pools::session::Session;

const LOOK_NS: u64 = 250_000_000;

/// What came of jobs that are done.
#[derive(Serialize)]
pub struct Done {
    /// The jobs.
    #[serde(skip)]
    pub kind: JobKind,
    /// Whether there was anything to do.
    pub worked: bool,
    /// Only what a crash left open was compared: no scrub was asked for.
    #[serde(skip)]
    pub only_resync: bool,
    /// What a scrub found, by volume.
    pub scrubs: Vec<ScrubbedVolume>,
    /// The pool afterwards.
    pub pools: Vec<PoolReport>,
}

/// What a scrub found on a volume.
#[derive(Serialize)]
pub struct ScrubbedVolume {
    /// The volume.
    pub volume: String,
    /// Bytes read and compared.
    pub checked_bytes: u64,
    /// Drives that held something wrong; all of it was repaired.
    pub repaired: Vec<Repaired>,
    /// Blocks of 4 KiB that disagreed where it cannot be told which copy was right; made to agree.
    pub unattributed_blocks: u64,
    /// Strips that could be neither read nor reconstructed.
    pub unreadable_strips: u64,
    /// Regions without redundancy at the moment, which could not be compared.
    pub regions_without_redundancy: u64,
    /// Why it ended early, where it did.
    pub error: Option<String>,
}

/// Blocks of a drive that were wrong.
#[derive(Serialize)]
pub struct Repaired {
    /// The drive's identity.
    pub drive: String,
    /// Where it is.
    pub path: String,
    /// How many.
    pub blocks: u64,
}

/// Works until no job of the kind is left. Several times a second it is told how the one that is
/// under way stands.
pub async fn work(control: &Control, session: &Session, kind: JobKind) -> Result<Done> {
    let mut tell = control.job_steps();
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
                tell(&JobStep { kind, pool: &name, job });
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
            .hint(format!("`stripewise pool wait {name} {kind}` goes on from here")));
        }
    }
    let report = session.report();
    let scrubs: Vec<ScrubbedVolume> =
        pool.scrub_reports().into_iter().map(|summary| scrubbed(summary, &report)).collect();
    // What becomes due by the way (a spare takes over) has been recorded.
    let worked = was_due || pool.generation() != before || !scrubs.is_empty();
    Ok(Done { kind, worked, only_resync, scrubs, pools: vec![report] })
}

fn scrubbed(summary: ScrubSummary, pool: &PoolReport) -> ScrubbedVolume {
    // Drives are blamed by their labels, which are their paths.
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
