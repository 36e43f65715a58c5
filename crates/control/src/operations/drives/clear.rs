//! `pool clear`: acknowledges what the pool reports of its drives. Error counters restart at 0, and
//! notices of activated spares end.

use crate::access::Access;
use crate::control::Control;
use crate::drives::names::{find, id_of};
use crate::failure::{Result, pool_failure};
use crate::messages::request::Clear;
use crate::messages::response::{PoolChange, PoolChanged, Response};
use crate::pools::session::with_pool;

/// Executes `pool clear`.
pub async fn run(asked: &Clear, control: &Control) -> Result<Response> {
    let name = &asked.pool.0;
    let what = format!("cannot clear the errors and notices of pool `{name}`");
    let (path, report) =
        with_pool(control, name, Access::Change, &format!("pool clear {name}"), async |session| {
            let report = session.report();
            let drive = match &asked.drive {
                Some(drive) => Some(find(&report, control, drive).await?),
                None => None,
            };
            let cleared = session.pool.clear(drive.map(id_of)).await;
            cleared.map_err(|error| pool_failure(what, &error))?;
            Ok((drive.map(|drive| drive.path.clone()), session.report()))
        })
        .await?;
    Ok(Response::PoolChanged(PoolChanged::new(
        report,
        PoolChange::Cleared { path },
        control.served.has(name),
    )))
}
