//! `volume convert`: a volume gets another layout while it is used. The command begins it; a
//! process that has the pool open works on it, and `pool wait POOL convert` does it in the
//! foreground.
//!
//! Expected faults: layouts that do not fit the drives, too little room (refused with the numbers,
//! nothing is touched), a volume that has the layout already or is being converted, a layout with
//! less redundancy (only with `--yes`).

use clap::Args;
use stripewise_control::access::Access;
use stripewise_control::failure::pool_failure;
use stripewise_control::names::VolumeName;
use stripewise_control::pools::session::{Session, with_pool};
use stripewise_control::report::counted;
use stripewise_control::request::ConvertVolume;
use stripewise_control::response::{Response, VolumeChange, VolumeChanged};
use stripewise_control::size::ByteSize;
use stripewise_engine::pool::{JobKind, PoolError};
use stripewise_layout::LayoutSpec;

use crate::commands::App;
use crate::commands::volume_create::{parse_layout, with_columns};
use crate::failure::{Failure, Result};
use crate::jobs::work;

/// Convert a volume to another layout online
#[derive(Args)]
pub(crate) struct Options {
    /// The volume
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
    /// single raid0 raid1 raid4 raid5 raid6 raid7 raid10 raid50 raid60; also simple mirror mirror3
    /// parity dual-parity raidz1 raidz2 raidz3
    #[arg(long, value_name = "LAYOUT", value_parser = parse_layout, required_unless_present = "cancel")]
    layout: Option<LayoutSpec>,
    /// Drives that it lies on; all of the pool's if left out (raid1: two, single: one)
    #[arg(long, value_name = "N")]
    columns: Option<usize>,
    /// Groups, for raid50 and raid60
    #[arg(long, value_name = "G")]
    groups: Option<usize>,
    /// Bytes on one drive before the next one follows: a power of two, 4KiB to 1MiB; as it is if
    /// left out
    #[arg(long, value_name = "SIZE")]
    interleave: Option<ByteSize>,
    /// Cancel the conversion that is under way: the volume goes back to the layout that it had
    #[arg(long, conflicts_with_all = ["layout", "columns", "groups", "interleave"])]
    cancel: bool,
    /// Yes, also to a layout that survives the loss of fewer drives
    #[arg(long)]
    yes: bool,
    /// Do the work now, in the foreground, and return when it is done
    #[arg(long)]
    wait: bool,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> Result<ConvertVolume> {
        let layout = match self.layout {
            Some(layout) => Some(LayoutSpec {
                groups: self.groups,
                interleave_bytes: self.interleave.map(|size| size.0),
                ..with_columns(layout, self.columns)?
            }),
            None => None,
        };
        Ok(ConvertVolume { volume: self.name.clone(), layout, yes: self.yes, wait: self.wait })
    }
}

/// Runs it.
pub(crate) async fn run(asked: &ConvertVolume, app: &App) -> Result<Response> {
    let (name, wanted) = (&asked.volume, asked.layout);
    let what = match wanted {
        Some(_) => format!("cannot convert volume `{name}`"),
        None => format!("cannot cancel the conversion of volume `{name}`"),
    };
    let volume =
        with_pool(app, &name.pool, Access::Change, &format!("volume convert {name}"), async |session| {
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
                work(app, session, JobKind::Convert).await?;
            }
            session.volume_report(name)
        })
        .await?;
    Ok(Response::VolumeChanged(VolumeChanged {
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
