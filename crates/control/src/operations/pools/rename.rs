//! `pool rename`: renames a pool, on its drives and in the registry. Clients must first close what
//! they opened under the old name; a daemon continues to serve the pool under the new one.
//!
//! Expected faults: a name that is taken, a pool that clients or other pools use, a crash half-way
//! (the next command that opens the pool for writing completes the rename).

use crate::access::Access;
use crate::control::Control;
use crate::daemon::serving::begin_serving;
use crate::failure::{Failure, Result};
use crate::messages::request::RenamePool;
use crate::messages::response::{PoolChange, PoolChanged, Response};
use crate::pools::session::Session;
use crate::registry::stacking::refuse_if_used;

/// Executes `pool rename`.
pub async fn run(asked: &RenamePool, control: &Control) -> Result<Response> {
    let (name, new_name) = (&asked.pool.0, &asked.new_name.0);
    let registry = control.registry()?;
    let known = registry.pool(name)?;
    let what = format!("rename pool `{name}`");
    refuse_if_used(&registry, &what, name, None)?;
    let held = control.served.hold(&what, name, None)?;
    let doing = format!("pool rename {name}");
    // Opened under the old name first, so that nothing changes if that fails or another process
    // uses the pool.
    let is_served = control.served.has(name);
    drop(held);
    let session = match Session::end_serving(control, name) {
        Some(session) => session,
        None => Session::open(control, name, Access::Change, &doing).await?,
    };
    // Keeps the daemon from adopting the pool half-way, under either name.
    let _coming = [name, new_name].map(|name| control.served.comes(name));
    session.close().await?;
    let context = control.executor()?.context();
    let renamed = registry.change_pools(&context, |pools| {
        if let Some(other) = pools.iter().find(|other| other.name == *new_name && other.id != known.id) {
            return Err(Failure::new(format!("there is a pool `{new_name}` already ({})", other.id))
                .hint("choose another name"));
        }
        match pools.iter_mut().find(|pool| pool.id == known.id) {
            Some(pool) => pool.name.clone_from(new_name),
            None => return Err(Failure::new(format!("pool `{name}` is no longer registered"))),
        }
        Ok(())
    });
    let renamed = renamed.await;
    // The registry is authoritative: when opened for writing, the pool takes its name from there.
    let opened_as = if renamed.is_ok() { new_name } else { name };
    let session = Session::open_to_serve(control, opened_as, &doing).await?;
    let report = session.report();
    match is_served {
        true => begin_serving(session),
        false => session.close().await?,
    }
    renamed?;
    Ok(Response::PoolChanged(PoolChanged::new(report, PoolChange::Renamed { from: name.clone() }, is_served)))
}
