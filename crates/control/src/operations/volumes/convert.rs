//! `volume convert`: changes the layout of a volume in use. The command starts the job; a process
//! that has the pool open runs it, and `pool wait POOL convert` runs it in the foreground.
//!
//! Expected faults: layouts that do not fit the drives, too little space (refused with figures,
//! nothing is changed), a volume that already has the layout or is being converted, a layout with
//! less redundancy (requires `--yes`).

use stripewise_layout::LayoutSpec;
use stripewise_pool::{JobKind, PoolError};

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

/// Executes `volume convert`.
pub async fn run(asked: &ConvertVolume, control: &Control) -> Result<Response> {
    let name = &asked.volume;
    let is_wanted = asked.layout.is_some() || asked.slices.is_some();
    let what = match is_wanted {
        true => format!("cannot convert volume `{name}`"),
        false => format!("cannot cancel the conversion of volume `{name}`"),
    };
    let volume =
        with_pool(control, &name.pool, Access::Change, &format!("volume convert {name}"), async |session| {
            session.show_notices();
            let begun = match is_wanted {
                true => {
                    if let (Some(layout), false) = (asked.layout, asked.yes) {
                        confirm_loss(session, name, layout)?;
                    }
                    session.pool.convert(&name.volume, asked.layout, asked.slices).await
                }
                false => session.pool.cancel_conversion(&name.volume).await,
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
        change: VolumeChange::Converted { is_served: control.served.has(&name.pool) },
    }))
}

/// Refuses a layout that survives the loss of fewer drives, unless confirmed.
fn confirm_loss(session: &Session, name: &VolumeName, layout: LayoutSpec) -> Result<()> {
    // An impossible conversion is refused later, with its reason.
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
        "to confirm, add --yes; until it is done, `stripewise volume convert {name} --cancel` reverts it"
    )))
}

/// Adds a hint with the required and the free space as sizes.
fn in_sizes(failure: Failure, error: &PoolError) -> Failure {
    match error {
        PoolError::NoRoomToConvert { needed_slabs, free_slabs, returned_slabs, slab_bytes, .. } => {
            let size = |slabs: &u64| ByteSize(slabs * slab_bytes);
            failure.hint(format!(
                "it would take {}; {} are free, and the {} of the old layout become free during the conversion: add drives \
                 with `stripewise pool add`, delete a volume, or choose a layout that takes less",
                size(needed_slabs),
                size(free_slabs),
                size(returned_slabs),
            ))
        }
        _ => failure,
    }
}
