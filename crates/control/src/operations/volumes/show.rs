//! `volume show`: one volume at length.

use crate::access::Access;
use crate::control::Control;
use crate::failure::Result;
use crate::messages::request::ShowVolume;
use crate::messages::response::{Response, Volumes};
use crate::pools::other_process;
use crate::pools::session::{find_volume, with_pool};

/// Carries it out.
pub async fn run(asked: &ShowVolume, control: &Control) -> Result<Response> {
    let name = &asked.volume;
    let registry = control.registry()?;
    let known = registry.pool(&name.pool)?;
    // Whoever has the pool open knows how it is used and what is being moved.
    let volume = match other_process::wait_for(control, &registry, &known).await? {
        Some(word) => find_volume(word.report, name)?,
        None => {
            with_pool(control, &name.pool, Access::Look, "volume show", async |session| {
                session.volume_report(name)
            })
            .await?
        }
    };
    Ok(Response::Volume(Volumes { volumes: vec![volume] }))
}
