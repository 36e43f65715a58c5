//! `volume resize`: a volume gets more rows, or fewer. What is stored beyond the new end is never
//! cut off: that is refused, with the numbers.
//!
//! Expected faults: too little room, sizes below what is stored, volumes that cannot be read.

use clap::Args;
use stripewise_control::access::Access;
use stripewise_control::failure::pool_failure;
use stripewise_control::names::VolumeName;
use stripewise_control::pools::session::with_pool;
use stripewise_control::registry::stacking::refuse_if_used;
use stripewise_control::request::ResizeVolume;
use stripewise_control::response::{Response, VolumeChange, VolumeChanged};
use stripewise_control::size::ByteSize;

use crate::commands::App;
use crate::failure::{Failure, Result};

/// Grow or shrink a volume
#[derive(Args)]
pub(crate) struct Options {
    /// The volume
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
    /// How much it should hold from now on
    #[arg(value_name = "SIZE")]
    size: ByteSize,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ResizeVolume {
        ResizeVolume { volume: self.name.clone(), size_bytes: self.size.0 }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &ResizeVolume, app: &App) -> Result<Response> {
    let (name, size) = (&asked.volume, ByteSize(asked.size_bytes));
    if size.0 == 0 {
        return Err(Failure::usage(format!("a volume of 0 bytes holds nothing; `{name}` stays as it is"))
            .hint(format!("to be rid of it: stripewise volume delete {name} --yes")));
    }
    let what_for = format!("resize volume `{name}`");
    refuse_if_used(&app.home()?, &what_for, &name.pool, Some(&name.volume))?;
    let what = format!("cannot make volume `{name}` hold {size}");
    let (before, volume) =
        with_pool(app, &name.pool, Access::Change, &format!("volume resize {name}"), async |session| {
            session.show_notices();
            let before = session.volume_report(name)?.capacity_bytes;
            let _held = match size.0 < before {
                true => Some(app.served.hold(&what_for, &name.pool, Some(&name.volume))?),
                false => None,
            };
            let resized = session.pool.resize_volume(&name.volume, size.0).await;
            resized.map_err(|error| pool_failure(&what, &error))?;
            Ok((before, session.volume_report(name)?))
        })
        .await?;
    Ok(Response::VolumeChanged(VolumeChanged {
        volumes: vec![volume],
        name: name.clone(),
        change: VolumeChange::Resized { from_bytes: before },
    }))
}
