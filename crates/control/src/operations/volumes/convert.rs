//! `volume convert`: a volume gets another layout while it is used. The command begins it; a
//! process that has the pool open works on it, and `pool wait POOL convert` does it in the
//! foreground.
//!
//! Expected faults: layouts that do not fit the drives, too little room (refused with the numbers,
//! nothing is touched), a volume that has the layout already or is being converted, a layout with
//! less redundancy (only with `--yes`).

use stripewise_engine::pool::{JobKind, PoolError};
use stripewise_layout::LayoutSpec;

use crate::access::Access;
use crate::control::Control;
use crate::failure::{Failure, Result, pool_failure};
use crate::jobs::work;
use crate::messages::report::counted;
use crate::messages::request::ConvertVolume;
use crate::messages::response::{Response, VolumeChange, VolumeChanged};
use crate::notation::names::VolumeName;
use crate::notation::size::ByteSize;
use crate::pools::session::{Session, with_pool};

/// Carries it out.
pub async fn run(asked: &ConvertVolume, control: &Control) -> Result<Response> {
    let (name, wanted) = (&asked.volume, asked.layout);
    let what = match wanted {
        Some(_) => format!("cannot convert volume `{name}`"),
        None => format!("cannot cancel the conversion of volume `{name}`"),
    };
    let volume =
        with_pool(control, &name.pool, Access::Change, &format!("volume convert {name}"), async |session| {
            session.show_notices();
            let begun = match wanted {
                Some(layout) => {
                    if !asked.yes {
                        confirm_loss(session, name, layout)?;
                    }
                    session.pool.convert_volume(&name.volume, layout).await
                }
                None => session.pool.cancel_conversion(&name.volume).await,
            };
            begun.map_err(|error| in_sizes(pool_failure(&what, &error), &error))?;
            if asked.wait {
                work(control, session, JobKind::Convert).await?;
            }
            session.volume_report(name)
        })
        .await?;
    Ok(Response::VolumeChanged(VolumeChanged {
        interleave_choice: None,
        volumes: vec![volume],
        name: name.clone(),
        change: VolumeChange::Converted,
    }))
}

/// Refuses a layout with which fewer drives may be lost, until that is what was meant.
fn confirm_loss(session: &Session, name: &VolumeName, layout: LayoutSpec) -> Result<()> {
    // What cannot be converted at all is refused with the reason where it is tried.
    let Ok(plan) = session.pool.plan_conversion(&name.volume, layout) else { return Ok(()) };
    let (before, after) = (plan.from.fault_tolerance(), plan.to.fault_tolerance());
    if after >= before {
        return Ok(());
    }
    let survives = |drives: usize| match drives {
        0 => "does not survive the loss of any drive".to_owned(),
        drives => format!("survives the loss of {}", counted(drives, "drive")),
    };
    Err(Failure::usage(format!(
        "volume {name} {} as {} over {}; as {} over {} it {}",
        survives(before),
        plan.from.level,
        counted(plan.from.width, "drive"),
        plan.to.level,
        counted(plan.to.width, "drive"),
        survives(after)
    ))
    .hint(format!(
        "if that is what you want, add --yes; `stripewise volume convert {name} --cancel` takes it back until it is done"
    )))
}

/// The room that it takes and the room there is, as people write sizes.
fn in_sizes(failure: Failure, error: &PoolError) -> Failure {
    match error {
        PoolError::NoRoomToConvert { needed_slabs, free_slabs, returned_slabs, slab_bytes, .. } => {
            let size = |slabs: &u64| ByteSize(slabs * slab_bytes);
            failure.hint(format!(
                "it would take {}; {} are free, and the {} that the volume has come back on the way: add drives with \
                 `stripewise pool add`, delete a volume, or choose a layout that takes less",
                size(needed_slabs),
                size(free_slabs),
                size(returned_slabs),
            ))
        }
        _ => failure,
    }
}
