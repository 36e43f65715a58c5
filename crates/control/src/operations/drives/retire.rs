//! `pool retire`: copies all data of a drive to the others during client I/O, and removes the drive
//! when it is empty. Unlike `pool remove`, this keeps full redundancy throughout.
//!
//! Expected faults: too little space on the other drives, a missing drive, one that fails during
//! the copy (it is then an ordinary failed drive).

use stripewise_pool::JobKind;

use crate::access::Access;
use crate::control::Control;
use crate::drives::names::{find, id_of};
use crate::failure::{Result, pool_failure};
use crate::jobs::work;
use crate::messages::request::RetireDrive;
use crate::messages::response::{PoolChange, PoolChanged, Response};
use crate::pools::session::with_pool;

/// Executes `pool retire`.
pub async fn run(asked: &RetireDrive, control: &Control) -> Result<Response> {
    let name = &asked.pool.0;
    let what = format!("cannot retire {} from pool `{name}`", asked.drive);
    let doing = format!("pool retire {name}");
    let (path, id, report) = with_pool(control, name, Access::Change, &doing, async |session| {
        let report = session.report();
        let drive = find(&report, control, &asked.drive).await?;
        control.note(format!(
            "no volume loses redundancy while {} is emptied: it stays in use until its data is on other drives",
            drive.path
        ));
        let retired = session.pool.retire(id_of(drive)).await;
        retired.map_err(|error| pool_failure(what, &error))?;
        if asked.wait {
            work(control, session, JobKind::Rebuild).await?;
        }
        Ok((drive.path.clone(), drive.id.clone(), session.report()))
    })
    .await?;
    let is_gone = !report.drives.iter().any(|drive| drive.id == id);
    let change = PoolChange::DriveRetired { path, is_gone, was_waited_for: asked.wait };
    Ok(Response::PoolChanged(PoolChanged::new(report, change, control.served.has(name))))
}
