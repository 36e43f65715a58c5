//! `volume resize`: a volume gets more rows, or fewer. What is stored beyond the new end is never
//! cut off: that is refused, with the numbers.
//!
//! Expected faults: too little room, sizes below what is stored, volumes that cannot be read.

use crate::access::Access;
use crate::control::Control;
use crate::failure::{Failure, Result, pool_failure};
use crate::messages::request::ResizeVolume;
use crate::messages::response::{Response, VolumeChange, VolumeChanged};
use crate::notation::size::WantedSize;
use crate::pools::session::with_pool;
use crate::registry::stacking::refuse_if_used;

/// Carries it out.
pub async fn run(asked: &ResizeVolume, control: &Control) -> Result<Response> {
    let name = &asked.volume;
    let empty = || {
        Failure::usage(format!("a volume of 0 bytes holds nothing; `{name}` stays as it is"))
            .hint(format!("to be rid of it: stripewise volume delete {name} --yes"))
    };
    if asked.size_bytes == WantedSize::Bytes(0) {
        return Err(empty());
    }
    let what_for = format!("resize volume `{name}`");
    refuse_if_used(&control.registry()?, &what_for, &name.pool, Some(&name.volume))?;
    let what = format!("cannot make volume `{name}` hold {}", asked.size_bytes);
    let (before, volume) =
        with_pool(control, &name.pool, Access::Change, &format!("volume resize {name}"), async |session| {
            session.show_notices();
            let before = session.volume_report(name)?.capacity_bytes;
            let most = || session.pool.largest_size(&name.volume);
            let size_bytes = asked.size_bytes.bytes(before, most);
            let size_bytes = size_bytes.map_err(|error| pool_failure(&what, &error))?;
            if size_bytes == 0 {
                return Err(empty());
            }
            let _held = match size_bytes < before {
                true => Some(control.served.hold(&what_for, &name.pool, Some(&name.volume))?),
                false => None,
            };
            let resized = session.pool.resize_volume(&name.volume, size_bytes).await;
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
