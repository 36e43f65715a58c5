//! `pool add`: adds drives to an existing pool. A new data drive is available at once to everything
//! that waits for space: rebuilds of degraded rows, thin volumes, new volumes.
//!
//! Expected faults: drives that are not empty (refused, or reported and overwritten with
//! `--force`), named twice, in use, too small, or already in the pool. Drives are added one by one:
//! if one is refused, those before it stay in the pool.

use crate::access::Access;
use crate::control::Control;
use crate::drives::rights::all_permitted;
use crate::failure::{Result, pool_failure};
use crate::messages::request::AddDrives;
use crate::messages::response::{PoolChange, PoolChanged, Response};
use crate::pools::session::with_pool;

/// Executes `pool add`.
pub async fn run(asked: &AddDrives, control: &Control) -> Result<Response> {
    let name = &asked.pool.0;
    let candidates = all_permitted(control, &asked.drives).await?;
    let report = with_pool(control, name, Access::Change, &format!("pool add {name}"), async |session| {
        // All are checked before the first is added.
        let mut opened = Vec::new();
        for candidate in &candidates {
            opened.push(session.open_new_drive(candidate, asked.force).await?);
        }
        for (candidate, opened) in candidates.iter().zip(opened) {
            let what = format!("cannot add {} to pool `{name}`", candidate.path.display());
            let added = session.pool.add(opened.drive, asked.role, asked.force).await;
            added.map_err(|error| pool_failure(what, &error))?;
        }
        // Rebuilds that waited for a drive can start.
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
