//! `volume pin`: says on which kind of drives a volume lives. Its rows move there while everything
//! goes on, now with `--wait`, else whenever a process has the pool open for long.
//!
//! Expected faults: too little room where it is to live (refused, with the numbers).

use stripewise_pool::JobKind;

use crate::access::Access;
use crate::control::Control;
use crate::failure::{Result, pool_failure};
use crate::jobs::work;
use crate::messages::request::PinVolume;
use crate::messages::response::{Response, VolumeChange, VolumeChanged};
use crate::pools::session::with_pool;

/// Carries it out.
pub async fn run(asked: &PinVolume, control: &Control) -> Result<Response> {
    let (name, pin) = (&asked.volume, asked.pin);
    let doing = format!("volume pin {name} {pin}");
    let volume = with_pool(control, &name.pool, Access::Change, &doing, async |session| {
        let pinned = session.pool.set_pin(&name.volume, pin).await;
        pinned.map_err(|error| pool_failure(format!("cannot pin volume `{name}` {pin}"), &error))?;
        if asked.wait {
            work(control, session, JobKind::Tier).await?;
        }
        session.volume_report(name)
    })
    .await?;
    Ok(Response::VolumeChanged(VolumeChanged {
        interleave_choice: None,
        volumes: vec![volume],
        name: name.clone(),
        change: VolumeChange::Pinned(pin),
    }))
}
