//! `pool remove`: a drive that holds nothing of the pool goes for good. One that holds something is
//! emptied first, by `pool retire`.
//!
//! Expected faults: drives that hold something (refused, with what to type instead), drives that
//! are not there.

use crate::access::Access;
use crate::control::Control;
use crate::drives::names::{find, id_of};
use crate::failure::{Result, pool_failure};
use crate::messages::request::RemoveDrive;
use crate::messages::response::{PoolChange, PoolChanged, Response};
use crate::pools::session::with_pool;

/// Carries it out.
pub async fn run(asked: &RemoveDrive, control: &Control) -> Result<Response> {
    let name = &asked.pool.0;
    let what = format!("cannot remove {} from pool `{name}`", asked.drive);
    let (path, report) =
        with_pool(control, name, Access::Change, &format!("pool remove {name}"), async |session| {
            let report = session.report();
            let drive = find(&report, control, &asked.drive).await?;
            let removed = session.pool.remove(id_of(drive)).await;
            removed.map_err(|error| pool_failure(what, &error))?;
            Ok((drive.path.clone(), session.report()))
        })
        .await?;
    Ok(Response::PoolChanged(PoolChanged::new(
        report,
        PoolChange::DriveRemoved { path },
        control.served.has(name),
    )))
}
