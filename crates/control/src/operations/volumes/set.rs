//! `volume set`: settings kept with a volume. Automatic snapshots are taken by the process that has
//! the pool open for long.
//!
//! Expected faults: volumes in place, which have no snapshots.

use crate::access::Access;
use crate::control::Control;
use crate::failure::{Result, pool_failure};
use crate::messages::request::SetVolume;
use crate::messages::response::{Response, VolumeChange, VolumeChanged};
use crate::pools::session::with_pool;

/// Carries it out.
pub async fn run(asked: &SetVolume, control: &Control) -> Result<Response> {
    let name = &asked.volume;
    let doing = format!("volume set {name}");
    let volume = with_pool(control, &name.pool, Access::Change, &doing, async |session| {
        let mut volumes = session.pool.volumes().into_iter();
        let known = volumes.find(|volume| volume.name == name.volume);
        let mut schedule = known.and_then(|volume| volume.schedule).unwrap_or_default();
        asked.settings.iter().for_each(|setting| setting.apply(&mut schedule));
        let set = session.pool.set_snapshot_schedule(&name.volume, schedule).await;
        set.map_err(|error| pool_failure(format!("cannot change volume `{name}`"), &error))?;
        session.volume_report(name)
    })
    .await?;
    Ok(Response::VolumeChanged(VolumeChanged {
        interleave_choice: None,
        volumes: vec![volume],
        name: name.clone(),
        change: VolumeChange::Set { is_served: control.served.has(&name.pool) },
    }))
}
