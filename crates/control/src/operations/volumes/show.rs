//! `volume show`: shows one volume in detail.

use crate::access::Access;
use crate::control::Control;
use crate::failure::Result;
use crate::messages::request::ShowVolume;
use crate::messages::response::{Response, Volumes};
use crate::pools::other_process;
use crate::pools::session::{find_volume, with_pool};

/// Executes `volume show`.
pub async fn run(asked: &ShowVolume, control: &Control) -> Result<Response> {
    let name = &asked.volume;
    let registry = control.registry()?;
    let known = registry.pool(&name.pool)?;
    // A process that has the pool open knows its current load and running jobs.
    let volume = match other_process::wait_for(control, &registry, &known).await? {
        Some(status) => find_volume(status.report, name)?,
        None => {
            with_pool(control, &name.pool, Access::Look, "volume show", async |session| {
                session.volume_report(name)
            })
            .await?
        }
    };
    Ok(Response::Volume(Volumes { volumes: vec![volume] }))
}
