//! `volume delete`: a volume and all that it holds.

use crate::access::Access;
use crate::control::Control;
use crate::failure::{Result, pool_failure};
use crate::messages::request::DeleteVolume;
use crate::messages::response::{Response, VolumeChange, VolumeChanged};
use crate::notation::size::ByteSize;
use crate::operations::unconfirmed;
use crate::pools::session::{Session, with_pool};
use crate::registry::stacking::refuse_if_used;

/// Carries it out.
pub async fn run(asked: &DeleteVolume, control: &Control) -> Result<Response> {
    let name = &asked.volume;
    let registry = control.registry()?;
    registry.pool(&name.pool)?;
    let what = format!("delete volume `{name}`");
    refuse_if_used(&registry, &what, &name.pool, Some(&name.volume))?;
    let _held = control.served.hold(&what, &name.pool, Some(&name.volume))?;
    let doing = format!("volume delete {name}");
    let meant = |session: &Session| -> Result<String> {
        let volume = session.volume_report(name)?;
        let pool = session.report().with_identity_and_drives();
        Ok(format!("volume {name} ({}, {}) of {pool}", volume.id, ByteSize(volume.capacity_bytes)))
    };
    if !asked.yes {
        let meant =
            with_pool(control, &name.pool, Access::Look, &doing, async |session| meant(session)).await?;
        return Err(unconfirmed(&doing, &format!("deleting {meant} loses all that it holds")));
    }
    let volumes = with_pool(control, &name.pool, Access::Change, &doing, async |session| {
        control.warning(format!("deleting {}", meant(session)?));
        let deleted = session.pool.delete_volume(&name.volume).await;
        deleted.map_err(|error| pool_failure(format!("cannot delete volume `{name}`"), &error))?;
        Ok(session.report().volumes)
    })
    .await?;
    Ok(Response::VolumeChanged(VolumeChanged {
        interleave_choice: None,
        volumes,
        name: name.clone(),
        change: VolumeChange::Deleted,
    }))
}
