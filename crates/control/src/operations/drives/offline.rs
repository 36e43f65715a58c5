//! `pool offline`: stops using a drive, so that it can be pulled, moved or examined. The pool
//! records the regions that change, so that `pool online` copies only those.
//!
//! Expected faults: volumes that would be unreadable without the drive (refused).

use crate::access::Access;
use crate::control::Control;
use crate::drives::names::{find, id_of};
use crate::failure::{Result, pool_failure};
use crate::messages::request::TakeOffline;
use crate::messages::response::{PoolChange, PoolChanged, Response};
use crate::pools::redundancy::notes_without;
use crate::pools::session::with_pool;

/// Executes `pool offline`.
pub async fn run(asked: &TakeOffline, control: &Control) -> Result<Response> {
    let name = &asked.pool.0;
    let what = format!("cannot take {} of pool `{name}` offline", asked.drive);
    let doing = format!("pool offline {name}");
    let (path, id, report) = with_pool(control, name, Access::Change, &doing, async |session| {
        let report = session.report();
        let drive = find(&report, control, &asked.drive).await?;
        let notes = notes_without(session, id_of(drive), &format!("while {} is offline", drive.path))?;
        let done = session.pool.offline(id_of(drive)).await;
        done.map_err(|error| pool_failure(what, &error))?;
        notes.into_iter().for_each(|note| control.note(note));
        Ok((drive.path.clone(), drive.id.clone(), session.report()))
    })
    .await?;
    Ok(Response::PoolChanged(PoolChanged::new(
        report,
        PoolChange::DriveOffline { path, id },
        control.served.has(name),
    )))
}
