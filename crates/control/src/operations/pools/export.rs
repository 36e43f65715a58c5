//! `pool export`: removes a pool from the registry, so that another host can import it. Drives that
//! are present record that this host has released the pool; missing ones do not matter.
//!
//! Expected faults: a pool in use, drives that are already gone (another host then needs
//! `pool import --force`).

use crate::access::Access;
use crate::control::Control;
use crate::failure::{Result, pool_failure};
use crate::messages::request::ExportPool;
use crate::messages::response::{PoolExported, Response};
use crate::pools::session::Session;
use crate::registry::stacking::refuse_if_used;

/// Executes `pool export`.
pub async fn run(asked: &ExportPool, control: &Control) -> Result<Response> {
    let registry = control.registry()?;
    let pool = registry.pool(&asked.pool.0)?;
    let what = format!("export pool `{}`", pool.name);
    refuse_if_used(&registry, &what, &pool.name, None)?;
    let _held = control.served.hold(&what, &pool.name, None)?;
    let doing = format!("pool export {}", pool.name);
    let opened = match Session::end_serving(control, &pool.name) {
        Some(session) => Ok(session),
        None => Session::open(control, &pool.name, Access::Change, &doing).await,
    };
    let released = match opened {
        Ok(session) => {
            let released = session.pool.release().await;
            let closed = session.close().await;
            released.map_err(|error| pool_failure("writing to its drives failed", &error)).and(closed)
        }
        Err(failure) if failure.taken_at().is_some() => return Err(failure),
        Err(failure) => {
            // A pool that cannot be opened is still locked first, as another process may use it.
            let (context, control_path) = (control.executor()?.context(), control.commands_at());
            drop(registry.lock_pool(&context, &pool, Access::Change, &doing, control_path).await?);
            Err(failure)
        }
    };
    registry.forget(&control.executor()?.context(), &pool.id).await?;
    if let Err(failure) = released {
        control.warning(format!(
            "the export is not recorded on the drives of the pool: {}; another host has to import it with --force",
            failure.message
        ));
    }
    Ok(Response::PoolExported(PoolExported { exported: pool }))
}
