//! `pool replace`: a new drive in the place of an old one. An old drive that works is used until
//! the new one has all that it holds; one that is gone is rebuilt from the others. The work belongs
//! to the pool; with `--wait` it is done at once.
//!
//! Expected faults: an old drive that is long gone (named by its last path or identity) or being
//! replaced already, a new one that holds something, is too small, or belongs to the pool already.

use clap::Args;
use stripewise_control::access::Access;
use stripewise_control::drives::candidates::Candidate;
use stripewise_control::drives::names::{find, id_of};
use stripewise_control::failure::pool_failure;
use stripewise_control::names::PoolName;
use stripewise_control::pools::redundancy::tell_without;
use stripewise_control::pools::session::with_pool;
use stripewise_control::report::PoolReport;
use stripewise_control::request::ReplaceDrive;
use stripewise_control::response::{PoolChange, PoolChanged, Response};
use stripewise_engine::pool::JobKind;

use crate::commands::App;
use crate::failure::Result;
use crate::jobs::work;

/// Replace a drive: a working one stays in use until the new one is full, a lost one is rebuilt
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// The drive that goes: its path or URI, last path, or identity
    #[arg(value_name = "OLD")]
    old: String,
    /// The drive that comes: a file, block device, volume or NBD URI, or the identity of one of the
    /// pool's spares
    #[arg(value_name = "NEW")]
    new: String,
    /// Overwrite the new drive even if it holds something
    #[arg(long)]
    force: bool,
    /// Rebuild now, in the foreground, instead of whenever the pool's jobs are worked on
    #[arg(long)]
    wait: bool,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ReplaceDrive {
        ReplaceDrive {
            pool: self.name.clone(),
            old: self.old.clone(),
            new: self.new.clone(),
            force: self.force,
            wait: self.wait,
        }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &ReplaceDrive, app: &App) -> Result<Response> {
    let name = &asked.pool.0;
    let what = format!("cannot replace {} in pool `{name}`", asked.old);
    let done = with_pool(app, name, Access::Change, &format!("pool replace {name}"), async |session| {
        let report = session.report();
        let old = find(&report, app, &asked.old)?;
        let old_id = id_of(old);
        match old.state.takes_part() {
            true => app.note(format!(
                "no volume loses redundancy while {} is replaced: it is used until the new drive is full",
                old.path
            )),
            false => tell_without(app, session, old, old_id, "until the new drive is rebuilt")?,
        }
        let replaced = match find(&report, app, &asked.new).ok().filter(|drive| drive.role == "spare") {
            Some(spare) => session.pool.replace_by_spare(old_id, id_of(spare)).await,
            None => {
                let candidate = Candidate::named(app, &asked.new)?;
                let opened = session.open_new_drive(&candidate, asked.force).await?;
                let replacing = session.pool.replace(old_id, opened.drive.clone(), asked.force);
                replacing.await.map(|_| ())
            }
        };
        replaced.map_err(|error| pool_failure(&what, &error))?;
        if asked.wait {
            return work(app, session, JobKind::Rebuild).await.map(Outcome::Rebuilt);
        }
        Ok(Outcome::Due(Box::new(session.report())))
    })
    .await?;
    let report = match done {
        Outcome::Rebuilt(done) => return Ok(Response::JobsDone(done)),
        Outcome::Due(report) => *report,
    };
    let change = PoolChange::DriveReplaced { old: asked.old.clone(), new: asked.new.clone() };
    Ok(Response::PoolChanged(PoolChanged::new(report, change, app.served.has(name))))
}

enum Outcome {
    Rebuilt(stripewise_control::jobs::Done),
    Due(Box<PoolReport>),
}
