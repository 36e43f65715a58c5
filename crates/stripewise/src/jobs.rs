//! Work on a pool's jobs in the foreground, with progress, and what came of it.
//!
//! Expected faults: an interrupt (the pool is closed in order, and whoever opens it next goes on),
//! jobs that cannot go on.

use std::cell::RefCell;
use std::pin::pin;

use futures_util::future::{Either, select};
use serde::Serialize;
use stripewise_engine::pool::{JobKind, ScrubSummary};

use crate::commands::App;
use crate::failure::{Exit, Failure, Result};
use crate::printer::{Page, Style};
use crate::progress::Progress;
use crate::report::{PoolReport, counted};
use crate::session::{Session, pool_failure};
use crate::size::ByteSize;

const LOOK_NS: u64 = 250_000_000;

/// What came of jobs that are done.
#[derive(Serialize)]
pub struct Done {
    #[serde(skip)]
    kind: JobKind,
    /// Whether there was anything to do.
    worked: bool,
    /// Only what a crash left open was compared: no scrub was asked for.
    #[serde(skip)]
    only_resync: bool,
    /// What a scrub found, by volume.
    scrubs: Vec<ScrubbedVolume>,
    /// The pool afterwards.
    pools: Vec<PoolReport>,
}

/// What a scrub found on a volume.
#[derive(Serialize)]
struct ScrubbedVolume {
    volume: String,
    checked_bytes: u64,
    /// Drives that held something wrong; all of it was repaired.
    repaired: Vec<Repaired>,
    /// Blocks of 4 KiB that disagreed where nobody can tell which copy was right; made to agree.
    unattributed_blocks: u64,
    /// Strips that could be neither read nor reconstructed.
    unreadable_strips: u64,
    /// Regions without redundancy at the moment, which could not be compared.
    regions_without_redundancy: u64,
    error: Option<String>,
}

#[derive(Serialize)]
struct Repaired {
    drive: String,
    path: String,
    blocks: u64,
}

/// What is due in a pool, and how it gets done; `None` where nothing is.
pub fn due_text(app: &App, pool: &PoolReport) -> Option<String> {
    let mut kinds: Vec<&str> = pool.activity.iter().map(|job| job.kind.as_str()).collect();
    kinds.dedup();
    let first = kinds.first()?;
    let (kinds, name) = (kinds.join(" and a "), &pool.name);
    Some(match app.served.has(name) {
        true => {
            format!("a {kinds} goes on in the daemon; `stripewise pool wait {name} {first}` waits for it")
        }
        false => format!("a {kinds} is due; `stripewise pool wait {name} {first}` does it"),
    })
}

/// Works until no job of the kind is left.
pub async fn work(app: &App, session: &Session, kind: JobKind) -> Result<Done> {
    app.let_others_go_on();
    session.start_jobs_below();
    let pool = &session.pool;
    let name = pool.name();
    let context = session.executor().context();
    let progress = RefCell::new(Progress::new(&app.printer));
    let was_due = session.report().activity.iter().any(|job| job.kind == kind.to_string());
    let before = pool.generation();
    let only_resync = kind == JobKind::Scrub && was_due && !pool.is_scrub_due();
    let interrupted = app.interrupted()?;
    let looking = async {
        loop {
            let report = session.report();
            let ours = || report.activity.iter().filter(|job| job.kind == kind.to_string());
            if let Some(job) = ours().find(|job| job.mb_per_s > 0.0).or_else(|| ours().next()) {
                let what = match job.volume.as_str() {
                    "" => format!("{kind} of {name}"),
                    volume => format!("{kind} of {name}/{volume}"),
                };
                progress.borrow_mut().update(&what, job.percent, job.mb_per_s, job.seconds_left);
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
    drop(progress);
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

impl Done {
    /// Prints the outcome; not all well is a failure.
    pub fn print(&self, app: &App) -> Result<Exit> {
        app.printer.result(self, |page| {
            let pool = &self.pools[0];
            match self.worked {
                true if self.only_resync => page.line(format!(
                    "pool {}: what a crash left open was compared. No scrub was asked for; `stripewise pool scrub {0} --wait` reads \
                     and compares everything",
                    pool.name
                )),
                true => page.line(format!("the {} of pool {} is done", self.kind, pool.name)),
                false if self.kind == JobKind::Scrub => page.line(format!(
                    "pool {}: no scrub was asked for, so nothing was checked; `stripewise pool scrub {0} --wait` does that",
                    pool.name
                )),
                false => page.line(format!("pool {} has no {} to do", pool.name, self.kind)),
            }
            self.scrubs.iter().for_each(|scrub| scrub.print(page));
            if pool.state != "online" {
                page.field("state", &pool.state, Style::Warning);
                page.field("condition", &pool.condition, Style::Plain);
                page.field("action", &pool.action, Style::Strong);
            }
        })?;
        let is_bad = |scrub: &ScrubbedVolume| scrub.error.is_some() || scrub.unreadable_strips > 0;
        Ok(if self.scrubs.iter().any(is_bad) { Exit::Failure } else { Exit::Success })
    }
}

impl ScrubbedVolume {
    fn print(&self, page: &mut Page) {
        page.line(format!("  volume {}: {} read and compared", self.volume, ByteSize(self.checked_bytes)));
        for drive in &self.repaired {
            let blocks = counted(drive.blocks as usize, "block");
            page.line(format!(
                "    {} held {blocks} of 4 KiB that were wrong; repaired from the others",
                drive.path
            ));
        }
        if self.unattributed_blocks > 0 {
            let blocks = counted(self.unattributed_blocks as usize, "block");
            page.line(format!("    {blocks} of 4 KiB disagreed with their redundancy, and this layout cannot tell which is right;"));
            page.line("    data were taken as they are, redundancy was made to agree");
        }
        if self.unreadable_strips > 0 {
            page.line(format!(
                "    {} could be neither read nor rebuilt",
                counted(self.unreadable_strips as usize, "strip")
            ));
        }
        if self.regions_without_redundancy > 0 {
            page.line("    parts have no redundancy at the moment and could not be compared");
        }
        if let Some(error) = &self.error {
            page.line(format!("    ended early: {error}"));
        }
        if self.repaired.is_empty()
            && self.unattributed_blocks == 0
            && self.unreadable_strips == 0
            && self.error.is_none()
        {
            page.line("    nothing wrong was found");
        }
    }
}
