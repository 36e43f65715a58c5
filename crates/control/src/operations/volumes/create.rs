//! `volume create`: creates a volume with a RAID layout on a pool's drives.
//!
//! Expected faults: layouts that do not fit the drives, too little space, names that are taken.

use stripewise_layout::{LayoutSpec, Level};
use stripewise_pool::{Pin, Pool, PoolError, Role, VolumeSpec};

use crate::access::Access;
use crate::control::Control;
use crate::failure::{Failure, Result, pool_failure};
use crate::messages::report::VolumeReport;
use crate::messages::request::CreateVolume;
use crate::messages::response::{InterleaveChoice, Response, VolumeChange, VolumeChanged};
use crate::notation::size::{ByteSize, WantedSize};
use crate::pools::session::with_pool;

/// Executes `volume create`.
pub async fn run(asked: &CreateVolume, control: &Control) -> Result<Response> {
    let name = &asked.volume;
    let what = format!("cannot create volume `{name}`");
    let size_bytes = match asked.size_bytes {
        Some(WantedSize::Bytes(bytes)) => Some(bytes),
        Some(WantedSize::More(_) | WantedSize::Less(_)) => {
            return Err(Failure::usage(format!("volume `{name}` has no size yet that could grow or shrink"))
                .hint("use a size such as 100GiB, a share of the free space such as 50%, or max"));
        }
        Some(WantedSize::Percent(_) | WantedSize::Max) | None => None,
    };
    let mut spec = VolumeSpec {
        name: name.volume.clone(),
        layout: asked.layout,
        size_bytes,
        thin: asked.thin,
        write_back: asked.write_back,
        checksums: asked.checksums,
        pin: asked.pin,
        log: asked.log_reserve_percent,
        slices: asked.slices,
    };
    let pin = spec.pin;
    let (volume, choice, are_disks) =
        with_pool(control, &name.pool, Access::Change, &format!("volume create {name}"), async |session| {
            let (choice, are_disks) = choose_interleave(&mut spec.layout, &session.pool, pin);
            let columns = choose_columns(&mut spec, &session.pool);
            if let (None, Some(wanted)) = (spec.size_bytes, asked.size_bytes) {
                let bytes = wanted.bytes(0, || session.pool.room_for(&spec));
                let bytes = bytes.map_err(|error| in_sizes(pool_failure(&what, &error), &error, pin))?;
                spec.size_bytes = Some(bytes);
            }
            let created = session.pool.create_volume(spec).await;
            created.map_err(|error| in_sizes(pool_failure(&what, &error), &error, pin))?;
            for notice in session.pool.notices() {
                control.note(format!("note: {notice}"));
            }
            columns.into_iter().for_each(|note| control.note(note));
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

/// Completes the layout for the drives of the volume's tier. Returns the reason for the interleave,
/// and true if the drives are seek-bound.
pub fn choose_interleave(layout: &mut LayoutSpec, pool: &Pool, pin: Pin) -> (InterleaveChoice, bool) {
    let role = if pin == Pin::Fast { Role::Fast } else { Role::Data };
    let drives = pool.status().drives.into_iter().filter(|drive| drive.role == role);
    let members: Vec<_> = drives.filter_map(|drive| pool.member(drive.id)).collect();
    let are_disks = members.iter().any(|member| member.info().is_seek_bound());
    let dearest_bytes = members.iter().map(|member| member.info().gap_bytes).max().unwrap_or(0);
    let (filled, reason) = layout.on_drives(dearest_bytes);
    *layout = filled;
    (reason.map_or(InterleaveChoice::Asked, Into::into), are_disks)
}

/// Numbers of columns whose room is stated beside that of the chosen one.
const OTHERS_SHOWN: usize = 2;
/// Fewer columns are chosen where they hold this much more, in percent of what all hold.
const WORTH_FEWER_PERCENT: u64 = 105;

/// Chooses the number of columns on drives of different sizes where it is left open: the one that
/// holds most, or all where the requested size fits. Returns a note on what others hold, also where
/// the number that was asked for leaves space of drives unused.
fn choose_columns(spec: &mut VolumeSpec, pool: &Pool) -> Option<String> {
    let level = spec.layout.level;
    let role = if spec.pin == Pin::Fast { Role::Fast } else { Role::Data };
    let sizes: Vec<u64> = pool
        .status()
        .drives
        .iter()
        .filter(|drive| drive.role == role)
        .map(|drive| drive.capacity_bytes)
        .collect();
    let differ = sizes.iter().max()? > sizes.iter().min()?;
    let is_fixed = matches!(level, Level::Single | Level::Raid1) || level.is_grouped();
    if !differ || is_fixed || spec.layout.groups.is_some() {
        return None;
    }
    let all = LayoutSpec { columns: None, ..spec.layout }.resolve(sizes.len()).ok()?.width;
    let room = |columns: usize| -> Option<(u64, usize)> {
        let layout = LayoutSpec { columns: Some(columns), ..spec.layout };
        layout.resolve(sizes.len()).ok()?;
        Some((pool.room_for(&VolumeSpec { layout, ..spec.clone() }).ok()?, columns))
    };
    let mut rooms: Vec<(u64, usize)> = (level.minimum_width()..=all).filter_map(room).collect();
    let of = |columns: usize| rooms.iter().find(|(_, of)| *of == columns).map_or(0, |(bytes, _)| *bytes);
    let of_all = of(all);
    // More columns are faster: the most of those that hold about as much as any.
    let most = rooms.iter().map(|(bytes, _)| *bytes).max()?;
    let best = *rooms.iter().rev().find(|(bytes, _)| bytes * WORTH_FEWER_PERCENT >= most * 100)?;
    let fits = spec.size_bytes.is_some_and(|size| size <= of_all);
    let chosen = match spec.layout.columns {
        Some(asked) => (of(asked), asked),
        None if fits => (of_all, all),
        None => best,
    };
    // Nothing is lost with all columns, or with those that were asked for.
    let is_usual = chosen.1 == all || spec.layout.columns.is_some();
    spec.layout.columns = Some(chosen.1);
    let is_enough = spec.size_bytes.is_some_and(|size| size <= chosen.0);
    if is_usual && (is_enough || most * 100 <= chosen.0 * WORTH_FEWER_PERCENT) {
        return None;
    }
    rooms.retain(|(_, columns)| *columns != chosen.1);
    rooms.sort_by_key(|(bytes, columns)| (std::cmp::Reverse(*columns == all), std::cmp::Reverse(*bytes)));
    let others: Vec<String> = rooms
        .iter()
        .take(OTHERS_SHOWN)
        .map(|(bytes, columns)| format!("--columns {columns} holds {}", ByteSize(*bytes)))
        .collect();
    (!others.is_empty()).then(|| {
        format!(
            "note: the drives differ in size: {} columns hold {}; {}",
            chosen.1,
            ByteSize(chosen.0),
            others.join(", ")
        )
    })
}

/// Note on the defaults that a volume got for seek-bound drives; `None` if there are none.
fn for_disks(volume: &VolumeReport, choice: InterleaveChoice, write_back: Option<bool>) -> Option<String> {
    let mut chosen = Vec::new();
    let mut others = Vec::new();
    if choice == InterleaveChoice::Disks {
        chosen.push(format!("an interleave of {}", ByteSize(volume.interleave_bytes)));
        others.push("--interleave");
    }
    if volume.rotation_rows > 1 {
        chosen.push(format!("parity that rotates every {} strips", volume.rotation_rows));
    }
    if volume.journal_area_bytes > 0 {
        chosen.push(format!("a journal of {} on each drive", ByteSize(volume.journal_area_bytes)));
    }
    if volume.write_back && write_back.is_none() {
        chosen.push("writes that are acknowledged once they are durable in it (write-back)".to_owned());
        others.push("--write-through");
    }
    let what = chosen.join(", ");
    let others = match others.is_empty() {
        true => String::new(),
        false => format!("; override with {}", others.join(" and ")),
    };
    (!what.is_empty()).then(|| {
        format!(
            "note: it has {what}, since on these drives a seek takes longer than transferring 64 KiB{others}"
        )
    })
}

/// Adds a hint with the available space as a size.
fn in_sizes(failure: Failure, error: &PoolError, pin: Pin) -> Failure {
    match error {
        PoolError::NoSpace { possible_bytes, .. } if pin == Pin::Fast => failure.hint(format!(
            "there is room for {} on the fast drives: add more with `stripewise pool add --as fast`, move another volume off \
             them with `stripewise volume pin POOL/VOL slow --wait`, or omit --pin",
            ByteSize(*possible_bytes),
        )),
        PoolError::BadSetting(_) if pin == Pin::Fast => {
            failure.hint("add fast drives with `stripewise pool add --as fast`, or omit --pin")
        }
        PoolError::NoSpace { possible_bytes: 0, .. } => {
            failure.hint("no space is left: delete a volume, or add drives with `stripewise pool add`")
        }
        PoolError::NoSpace { possible_bytes, .. } => failure.hint(format!(
            "there is room for {}: choose a smaller size, omit --size to use all of it, delete a volume, or add drives \
             with `stripewise pool add`",
            ByteSize(*possible_bytes),
        )),
        _ => failure,
    }
}
