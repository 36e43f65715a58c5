//! `snapshot list`: the snapshots of a volume, a pool or all pools.

use crate::access::Access;
use crate::control::Control;
use crate::failure::Result;
use crate::messages::request::ListSnapshots;
use crate::messages::response::{Response, Snapshots};
use crate::operations::snapshots::reports;
use crate::pools::session::with_pool;

/// Carries it out.
pub async fn run(asked: &ListSnapshots, control: &Control) -> Result<Response> {
    let registry = control.registry()?;
    let named = asked.volume.as_ref().map(|volume| volume.pool.clone());
    let named = named.or_else(|| asked.pool.as_ref().map(|pool| pool.0.clone()));
    let pools = match &named {
        Some(name) => vec![registry.pool(name)?],
        None => registry.pools()?,
    };
    let volume = asked.volume.as_ref().map(|volume| volume.volume.as_str());
    let mut snapshots = Vec::new();
    for pool in pools {
        let found = with_pool(control, &pool.name, Access::Look, "snapshot list", async |session| {
            reports(session, volume)
        });
        match found.await {
            Ok(found) => snapshots.extend(found),
            Err(failure) if failure.taken_at().is_some() => return Err(failure),
            // One pool that is away does not hide the others.
            Err(failure) if named.is_none() => control.warning(failure.message),
            Err(failure) => return Err(failure),
        }
    }
    Ok(Response::Snapshots(Snapshots { snapshots }))
}
