//! `volume list`: the volumes of one or all pools.

use crate::access::Access;
use crate::control::Control;
use crate::failure::Result;
use crate::messages::report::VolumeReport;
use crate::messages::request::ListVolumes;
use crate::messages::response::{Response, Volumes};
use crate::pools::other_process;
use crate::pools::session::with_pool;
use crate::registry::{KnownPool, Registry};

/// Carries it out.
pub async fn run(asked: &ListVolumes, control: &Control) -> Result<Response> {
    let registry = control.registry()?;
    let pools = match &asked.pool {
        Some(name) => vec![registry.pool(&name.0)?],
        None => registry.pools()?,
    };
    let mut volumes = Vec::new();
    for pool in pools {
        match volumes_of(control, &registry, &pool).await {
            Ok(found) => volumes.extend(found),
            Err(failure) if failure.taken_at().is_some() => return Err(failure),
            // One pool that is away does not hide the others.
            Err(failure) if asked.pool.is_none() => control.warning(failure.message),
            Err(failure) => return Err(failure),
        }
    }
    Ok(Response::Volumes(Volumes { volumes }))
}

async fn volumes_of(control: &Control, registry: &Registry, pool: &KnownPool) -> Result<Vec<VolumeReport>> {
    match other_process::wait_for(control, registry, pool).await? {
        Some(word) => Ok(word.report.volumes),
        None => {
            with_pool(control, &pool.name, Access::Look, "volume list", async |session| {
                Ok(session.report().volumes)
            })
            .await
        }
    }
}
