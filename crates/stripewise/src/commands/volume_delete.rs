//! `volume delete`: a volume and all that it holds.

use clap::Args;
use stripewise_control::access::Access;
use stripewise_control::failure::pool_failure;
use stripewise_control::names::VolumeName;
use stripewise_control::pools::session::{Session, with_pool};
use stripewise_control::registry::stacking::refuse_if_used;
use stripewise_control::request::DeleteVolume;
use stripewise_control::response::{Response, VolumeChange, VolumeChanged};
use stripewise_control::size::ByteSize;

use crate::commands::{App, unconfirmed};
use crate::failure::Result;

/// Delete a volume
#[derive(Args)]
pub(crate) struct Options {
    /// The volume
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
    /// Yes, lose all that it holds
    #[arg(long)]
    yes: bool,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> DeleteVolume {
        DeleteVolume { volume: self.name.clone(), yes: self.yes }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &DeleteVolume, app: &App) -> Result<Response> {
    let name = &asked.volume;
    let home = app.home()?;
    home.pool(&name.pool)?;
    let what = format!("delete volume `{name}`");
    refuse_if_used(&home, &what, &name.pool, Some(&name.volume))?;
    let _held = app.served.hold(&what, &name.pool, Some(&name.volume))?;
    let doing = format!("volume delete {name}");
    let meant = |session: &Session| -> Result<String> {
        let volume = session.volume_report(name)?;
        let pool = session.report().with_identity_and_drives();
        Ok(format!("volume {name} ({}, {}) of {pool}", volume.id, ByteSize(volume.capacity_bytes)))
    };
    if !asked.yes {
        let meant = with_pool(app, &name.pool, Access::Look, &doing, async |session| meant(session)).await?;
        return Err(unconfirmed(&doing, &format!("deleting {meant} loses all that it holds")));
    }
    let volumes = with_pool(app, &name.pool, Access::Change, &doing, async |session| {
        app.warning(format!("deleting {}", meant(session)?));
        let deleted = session.pool.delete_volume(&name.volume).await;
        deleted.map_err(|error| pool_failure(format!("cannot delete volume `{name}`"), &error))?;
        Ok(session.report().volumes)
    })
    .await?;
    Ok(Response::VolumeChanged(VolumeChanged { volumes, name: name.clone(), change: VolumeChange::Deleted }))
}
