//! `pool remove`: a drive that holds nothing of the pool goes for good. One that holds something is
//! emptied first, by `pool retire`.
//!
//! Expected faults: drives that hold something (refused, with what to type instead), drives that
//! are not there.

use clap::Args;
use stripewise_control::access::Access;
use stripewise_control::drives::names::{find, id_of};
use stripewise_control::failure::pool_failure;
use stripewise_control::names::PoolName;
use stripewise_control::pools::session::with_pool;
use stripewise_control::request::RemoveDrive;
use stripewise_control::response::{PoolChange, PoolChanged, Response};

use crate::commands::App;
use crate::failure::Result;

/// Remove a drive that holds no data of the pool
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// The drive: its path, last path, or identity
    #[arg(value_name = "DRIVE")]
    drive: String,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> RemoveDrive {
        RemoveDrive { pool: self.name.clone(), drive: self.drive.clone() }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &RemoveDrive, app: &App) -> Result<Response> {
    let name = &asked.pool.0;
    let what = format!("cannot remove {} from pool `{name}`", asked.drive);
    let (path, report) =
        with_pool(app, name, Access::Change, &format!("pool remove {name}"), async |session| {
            let report = session.report();
            let drive = find(&report, app, &asked.drive)?;
            let removed = session.pool.remove(id_of(drive)).await;
            removed.map_err(|error| pool_failure(what, &error))?;
            Ok((drive.path.clone(), session.report()))
        })
        .await?;
    Ok(Response::PoolChanged(PoolChanged::new(
        report,
        PoolChange::DriveRemoved { path },
        app.served.has(name),
    )))
}
