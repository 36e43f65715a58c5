//! `volume create`: a volume with a RAID layout on a pool's drives.
//!
//! Expected faults: layouts that do not fit the drives, too little room, names that are taken.

use stripewise_engine::Pool;
use stripewise_engine::pool::{Pin, PoolError, Role, VolumeSpec};
use stripewise_layout::LayoutSpec;

use crate::access::Access;
use crate::control::Control;
use crate::failure::{Failure, Result, pool_failure};
use crate::messages::report::VolumeReport;
use crate::messages::request::CreateVolume;
use crate::messages::response::{InterleaveChoice, Response, VolumeChange, VolumeChanged};
use crate::notation::size::ByteSize;
use crate::pools::session::with_pool;

/// Carries it out.
pub async fn run(asked: &CreateVolume, control: &Control) -> Result<Response> {
    let name = &asked.volume;
    let what = format!("cannot create volume `{name}`");
    let mut spec = VolumeSpec {
        name: name.volume.clone(),
        layout: asked.layout,
        size_bytes: asked.size_bytes,
        thin: asked.thin,
        write_back: asked.write_back,
        checksums: asked.checksums,
        pin: asked.pin,
    };
    let pin = spec.pin;
    let (volume, choice, are_disks) =
        with_pool(control, &name.pool, Access::Change, &format!("volume create {name}"), async |session| {
            let (choice, are_disks) = choose_interleave(&mut spec.layout, &session.pool, pin);
            let created = session.pool.create_volume(spec).await;
            created.map_err(|error| in_sizes(pool_failure(&what, &error), &error, pin))?;
            for notice in session.pool.notices() {
                control.note(format!("note: {notice}"));
            }
            Ok((session.volume_report(name)?, choice, are_disks))
        })
        .await?;
    if are_disks && let Some(note) = for_disks(&volume, choice, asked.write_back) {
        control.note(note);
    }
    Ok(Response::VolumeChanged(VolumeChanged {
        volumes: vec![volume],
        interleave_choice: Some(choice),
        name: name.clone(),
        change: VolumeChange::Created { thin: asked.thin },
    }))
}

/// Sets what was left open of the layout, by the drives that the volume will lie on; what decided
/// the interleave, and whether they are disks.
fn choose_interleave(layout: &mut LayoutSpec, pool: &Pool, pin: Pin) -> (InterleaveChoice, bool) {
    let role = if pin == Pin::Fast { Role::Fast } else { Role::Data };
    let drives = pool.status().drives.into_iter().filter(|drive| drive.role == role);
    let members: Vec<_> = drives.filter_map(|drive| pool.member(drive.id)).collect();
    let are_disks = members.iter().any(|member| member.info().has_dear_positions());
    let dearest_bytes = members.iter().map(|member| member.info().gap_bytes).max().unwrap_or(0);
    let (filled, reason) = layout.on_drives(dearest_bytes);
    *layout = filled;
    (reason.map_or(InterleaveChoice::Asked, Into::into), are_disks)
}

/// What a volume got because its drives are disks, and why; `None` where that is nothing.
fn for_disks(volume: &VolumeReport, choice: InterleaveChoice, write_back: Option<bool>) -> Option<String> {
    let mut chosen = Vec::new();
    let mut others = Vec::new();
    if choice == InterleaveChoice::Disks {
        chosen.push(format!("an interleave of {}", ByteSize(volume.interleave_bytes)));
        others.push("--interleave");
    }
    if volume.rotation_rows > 1 {
        chosen.push(format!("parity that stays on a drive for {} strips", volume.rotation_rows));
    }
    if volume.journal_area_bytes > 0 {
        chosen.push(format!("a journal of {} on each drive", ByteSize(volume.journal_area_bytes)));
    }
    if volume.write_back && write_back.is_none() {
        chosen.push("writes that are acknowledged once they are safe in it (write-back)".to_owned());
        others.push("--write-through");
    }
    let what = chosen.join(", ");
    let others = match others.is_empty() {
        true => String::new(),
        false => format!("; {} would choose otherwise", others.join(" and ")),
    };
    (!what.is_empty()).then(|| {
        format!(
            "note: it has {what}, since on these drives a position costs more time than 64 KiB of data{others}"
        )
    })
}

/// The room asked for and the room there is, as people write sizes.
fn in_sizes(failure: Failure, error: &PoolError, pin: Pin) -> Failure {
    match error {
        PoolError::NoSpace { possible_bytes, .. } if pin == Pin::Fast => failure.hint(format!(
            "there is room for {} on the fast drives: add more with `stripewise pool add --as fast`, let others make room with \
             `stripewise volume pin POOL/VOL slow --wait`, or leave --pin out",
            ByteSize(*possible_bytes),
        )),
        PoolError::BadSetting(_) if pin == Pin::Fast => {
            failure.hint("put fast drives in with `stripewise pool add --as fast`, or leave --pin out")
        }
        PoolError::NoSpace { possible_bytes: 0, .. } => {
            failure.hint("all the room is taken: delete a volume first, or add drives with `stripewise pool add`")
        }
        PoolError::NoSpace { possible_bytes, .. } => failure.hint(format!(
            "there is room for {}: ask for a smaller volume, leave --size out to get all there is, delete one, or add \
             drives with `stripewise pool add`",
            ByteSize(*possible_bytes),
        )),
        _ => failure,
    }
}
