//! `volume resize`: a volume gets more rows, or fewer. What is stored beyond the new end is never
//! cut off: that is refused, with the numbers.
//!
//! Expected faults: too little room, sizes below what is stored, volumes that cannot be read.

use crate::access::Access;
use crate::control::Control;
use crate::failure::{Failure, Result, pool_failure};
use crate::messages::request::ResizeVolume;
use crate::messages::response::{Response, VolumeChange, VolumeChanged};
use crate::notation::size::ByteSize;
use crate::pools::session::with_pool;
use crate::registry::stacking::refuse_if_used;

/// Carries it out.
pub async fn run(asked: &ResizeVolume, control: &Control) -> Result<Response> {
    let (name, size) = (&asked.volume, ByteSize(asked.size_bytes));
    if size.0 == 0 {
        return Err(Failure::usage(format!("a volume of 0 bytes holds nothing; `{name}` stays as it is"))
            .hint(format!("to be rid of it: stripewise volume delete {name} --yes")));
    }
    let what_for = format!("resize volume `{name}`");
    refuse_if_used(&control.registry()?, &what_for, &name.pool, Some(&name.volume))?;
    let what = format!("cannot make volume `{name}` hold {size}");
    let (before, volume) =
        with_pool(control, &name.pool, Access::Change, &format!("volume resize {name}"), async |session| {
            session.show_notices();
            let before = session.volume_report(name)?.capacity_bytes;
            let _held = match size.0 < before {
                true => Some(control.served.hold(&what_for, &name.pool, Some(&name.volume))?),
                false => None,
            };
            let resized = session.pool.resize_volume(&name.volume, size.0).await;
            resized.map_err(|error| pool_failure(&what, &error))?;
            Ok((before, session.volume_report(name)?))
        })
        .await?;
    Ok(Response::VolumeChanged(VolumeChanged {
        interleave_choice: None,
        volumes: vec![volume],
        name: name.clone(),
        change: VolumeChange::Resized { from_bytes: before },
    }))
}
