//! `pool add`: drives into a pool that is there already. A data drive is used at once by whatever
//! waits for room: rebuilds of degraded rows, thin volumes, new volumes.
//!
//! Expected faults: drives that hold something (refused, or named and overwritten with `--force`),
//! the same one twice, in use, too small, one of the pool's own. Drives are taken in one after the
//! other: where one is refused, those before it are in.

use crate::access::Access;
use crate::control::Control;
use crate::drives::candidates;
use crate::failure::{Result, pool_failure};
use crate::messages::request::AddDrives;
use crate::messages::response::{PoolChange, PoolChanged, Response};
use crate::pools::session::with_pool;

/// Carries it out.
pub async fn run(asked: &AddDrives, control: &Control) -> Result<Response> {
    let name = &asked.pool.0;
    let candidates = candidates::all(control, &asked.drives)?;
    let report = with_pool(control, name, Access::Change, &format!("pool add {name}"), async |session| {
        // All are looked at before the first is taken in.
        let mut opened = Vec::new();
        for candidate in &candidates {
            opened.push(session.open_new_drive(candidate, asked.force).await?);
        }
        for (candidate, opened) in candidates.iter().zip(opened) {
            let what = format!("cannot add {} to pool `{name}`", candidate.path.display());
            let added = session.pool.add(opened.drive, asked.role, asked.force).await;
            added.map_err(|error| pool_failure(what, &error))?;
        }
        // What waited for a drive is due from now on.
        let allocated = session.pool.allocate_spares().await;
        allocated
            .map_err(|error| pool_failure(format!("cannot plan the rebuilds of pool `{name}`"), &error))?;
        Ok(session.report())
    })
    .await?;
    Ok(Response::PoolChanged(PoolChanged::new(
        report,
        PoolChange::DrivesAdded { count: candidates.len(), role: asked.role },
        control.served.has(name),
    )))
}
