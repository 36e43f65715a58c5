//! `pool retire`: everything on a drive is copied to the others while clients go on; once it is
//! empty the pool lets go of it. Unlike `pool remove` this loses no redundancy at any time.
//!
//! Expected faults: too little room elsewhere, a drive that is not there, one that fails meanwhile
//! (then it is a failed drive like any other).

use clap::Args;
use stripewise_control::access::Access;
use stripewise_control::drives::names::{find, id_of};
use stripewise_control::failure::pool_failure;
use stripewise_control::names::PoolName;
use stripewise_control::pools::session::with_pool;
use stripewise_control::request::RetireDrive;
use stripewise_control::response::{PoolChange, PoolChanged, Response};
use stripewise_engine::pool::JobKind;

use crate::commands::App;
use crate::failure::Result;
use crate::jobs::work;

/// Migrate data off a drive online, then remove it
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// The drive: its path or identity
    #[arg(value_name = "DRIVE")]
    drive: String,
    /// Do it now, in the foreground, instead of whenever the pool's jobs are worked on
    #[arg(long)]
    wait: bool,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> RetireDrive {
        RetireDrive { pool: self.name.clone(), drive: self.drive.clone(), wait: self.wait }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &RetireDrive, app: &App) -> Result<Response> {
    let name = &asked.pool.0;
    let what = format!("cannot retire {} from pool `{name}`", asked.drive);
    let doing = format!("pool retire {name}");
    let (path, id, report) = with_pool(app, name, Access::Change, &doing, async |session| {
        let report = session.report();
        let drive = find(&report, app, &asked.drive)?;
        app.note(format!(
            "no volume loses redundancy while {} is emptied: it counts until what it holds is elsewhere",
            drive.path
        ));
        let retired = session.pool.retire(id_of(drive)).await;
        retired.map_err(|error| pool_failure(what, &error))?;
        if asked.wait {
            work(app, session, JobKind::Rebuild).await?;
        }
        Ok((drive.path.clone(), drive.id.clone(), session.report()))
    })
    .await?;
    let is_gone = !report.drives.iter().any(|drive| drive.id == id);
    let change = PoolChange::DriveRetired { path, is_gone, was_waited_for: asked.wait };
    Ok(Response::PoolChanged(PoolChanged::new(report, change, app.served.has(name))))
}
