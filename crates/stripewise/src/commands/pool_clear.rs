//! `pool clear`: what was counted and told of drives was seen: counts of errors begin again, and
//! spares that took over are not mentioned any more.

use clap::Args;
use stripewise_control::access::Access;
use stripewise_control::drives::names::{find, id_of};
use stripewise_control::failure::pool_failure;
use stripewise_control::names::PoolName;
use stripewise_control::pools::session::with_pool;
use stripewise_control::request::Clear;
use stripewise_control::response::{PoolChange, PoolChanged, Response};

use crate::commands::App;
use crate::failure::Result;

/// Reset error counts and acknowledge what the status reports of drives
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// The drive, by path or identity; all drives if left out
    #[arg(value_name = "DRIVE")]
    drive: Option<String>,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> Clear {
        Clear { pool: self.name.clone(), drive: self.drive.clone() }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &Clear, app: &App) -> Result<Response> {
    let name = &asked.pool.0;
    let what = format!("cannot clear what pool `{name}` reports");
    let (path, report) =
        with_pool(app, name, Access::Change, &format!("pool clear {name}"), async |session| {
            let report = session.report();
            let drive = asked.drive.as_ref().map(|drive| find(&report, app, drive)).transpose()?;
            let cleared = session.pool.clear(drive.map(id_of)).await;
            cleared.map_err(|error| pool_failure(what, &error))?;
            Ok((drive.map(|drive| drive.path.clone()), session.report()))
        })
        .await?;
    Ok(Response::PoolChanged(PoolChanged::new(report, PoolChange::Cleared { path }, app.served.has(name))))
}
