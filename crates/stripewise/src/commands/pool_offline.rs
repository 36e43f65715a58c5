//! `pool offline`: a drive is not used for a while, so that it can be pulled, moved or looked at.
//! What changes meanwhile is remembered, so that `pool online` copies only that.
//!
//! Expected faults: volumes that could not be read without the drive (refused).

use clap::Args;
use stripewise_control::access::Access;
use stripewise_control::drives::names::{find, id_of};
use stripewise_control::failure::pool_failure;
use stripewise_control::names::PoolName;
use stripewise_control::pools::redundancy::tell_without;
use stripewise_control::pools::session::with_pool;
use stripewise_control::request::TakeOffline;
use stripewise_control::response::{PoolChange, PoolChanged, Response};

use crate::commands::App;
use crate::failure::Result;

/// Take a drive offline temporarily
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// The drive: its path or identity
    #[arg(value_name = "DRIVE")]
    drive: String,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> TakeOffline {
        TakeOffline { pool: self.name.clone(), drive: self.drive.clone() }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &TakeOffline, app: &App) -> Result<Response> {
    let name = &asked.pool.0;
    let what = format!("cannot take {} of pool `{name}` offline", asked.drive);
    let doing = format!("pool offline {name}");
    let (path, id, report) = with_pool(app, name, Access::Change, &doing, async |session| {
        let report = session.report();
        let drive = find(&report, app, &asked.drive)?;
        tell_without(app, session, drive, id_of(drive), &format!("while {} is offline", drive.path))?;
        let done = session.pool.offline(id_of(drive)).await;
        done.map_err(|error| pool_failure(what, &error))?;
        Ok((drive.path.clone(), drive.id.clone(), session.report()))
    })
    .await?;
    Ok(Response::PoolChanged(PoolChanged::new(
        report,
        PoolChange::DriveOffline { path, id },
        app.served.has(name),
    )))
}
