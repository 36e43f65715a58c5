//! `pool replace`: a new drive in the place of an old one. The rebuild onto it belongs to the pool; with `--wait` it is done
//! at once.
//!
//! Expected faults: an old drive that is long gone (named by its last path or identity), a new one that holds something, is
//! too small, or belongs to the pool already.

use std::path::{Path, PathBuf};

use clap::Args;
use stripewise_engine::pool::{DriveId, JobKind, inspect};

use crate::candidates::Candidate;
use crate::commands::pool_create::refuse_contents;
use crate::commands::{App, Pools};
use crate::failure::{Exit, Failure, Result};
use crate::jobs::work;
use crate::names::PoolName;
use crate::report::{DriveReport, PoolReport};
use crate::session::{Access, pool_failure, with_pool};

/// Put a new drive in the place of an old or lost one, and rebuild onto it
#[derive(Args)]
pub struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// The drive that goes: its path, last path, or identity
    #[arg(value_name = "OLD")]
    old: String,
    /// The drive that comes: a file or block device
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// Overwrite the new drive even if it holds something
    #[arg(long)]
    force: bool,
    /// Rebuild now, in the foreground, instead of whenever the pool's jobs are worked on
    #[arg(long)]
    wait: bool,
}

/// Runs it.
pub fn run(options: &Options, app: &App) -> Result<Exit> {
    let name = &options.name.0;
    let what = format!("cannot replace {} in pool `{name}`", options.old);
    let candidate = Candidate::at(&options.new)?;
    let done = with_pool(app, name, Access::Change, &format!("pool replace {name}"), |session| {
        let report = session.report();
        let old = find_drive(&report, &options.old)?;
        let old_id: DriveId = old.id.parse().expect("a report has identities as they are written");
        let opened = session.open_new_drive(&candidate.path, candidate.identity)?;
        // A drive of this very pool that was left out may come back: the engine knows whether it may be overwritten.
        let label = session.run(inspect(&*opened.file));
        let is_ours = matches!(&label, Ok(Some(label)) if label.pool_id.to_string() == report.id);
        if !is_ours {
            refuse_contents(app, session.executor(), &candidate, &opened, options.force)?;
        }
        let replaced = session.run(session.pool.replace(old_id, opened.drive.clone(), options.force));
        replaced.map_err(|error| pool_failure(&what, &error))?;
        if options.wait {
            return work(app, session, JobKind::Rebuild).map(Outcome::Rebuilt);
        }
        Ok(Outcome::Due(session.report()))
    })?;
    let report = match done {
        Outcome::Rebuilt(done) => return done.print(app),
        Outcome::Due(report) => report,
    };
    let is_due = !report.activity.is_empty();
    app.printer.result(&Pools { pools: vec![report] }, |page| {
        page.line(format!("{} takes the place of {} in pool {name}", candidate.path.display(), options.old));
        if is_due {
            page.line(format!("the rebuild onto it is due; `stripewise pool wait {name} rebuild` does it"));
        }
    })?;
    Ok(Exit::Success)
}

enum Outcome {
    Rebuilt(crate::jobs::Done),
    Due(PoolReport),
}

/// A drive of the pool by path or identity; of several with one path the one that is out of service.
fn find_drive<'a>(report: &'a PoolReport, name: &str) -> Result<&'a DriveReport> {
    let absolute = std::path::absolute(name).unwrap_or_else(|_| PathBuf::from(name));
    let by_path = |drive: &&DriveReport| Path::new(&drive.path) == absolute;
    let is_online = |drive: &&DriveReport| drive.state == "online";
    let begins = |drive: &&DriveReport| name.len() >= 4 && drive.id.starts_with(name);
    let matching: Vec<&DriveReport> = match report.drives.iter().filter(by_path).collect::<Vec<_>>() {
        several if !several.is_empty() => several,
        _ => report.drives.iter().filter(begins).collect(),
    };
    let out = matching.iter().copied().find(|drive| !is_online(drive));
    match (out, matching.as_slice()) {
        (Some(drive), _) => Ok(drive),
        (None, [drive]) => Ok(drive),
        (None, []) => {
            let known: Vec<String> =
                report.drives.iter().map(|drive| format!("{} ({})", drive.path, drive.id)).collect();
            Err(Failure::new(format!("pool `{}` has no drive {name}", report.name))
                .hint(format!("its drives are {}", known.join(", "))))
        }
        (None, _) => Err(Failure::new(format!(
            "`{name}` begins the identity of several drives of pool `{}`",
            report.name
        ))
        .hint("write more of it")),
    }
}
