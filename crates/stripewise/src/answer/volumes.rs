//! Changes to a volume as text.

use stripewise_control::report::{VolumeReport, counted};
use stripewise_control::response::{VolumeChange, VolumeChanged, VolumeWritten};
use stripewise_control::size::ByteSize;
use stripewise_pool::Pin;

use crate::printer::Page;
use crate::report::schedule_in_words;

/// Prints the result.
pub(super) fn words(changed: &VolumeChanged, page: &mut Page) {
    let name = &changed.name;
    let volume = match (&changed.change, changed.volumes.as_slice()) {
        (VolumeChange::Deleted, _) => return page.line(format!("volume {name} deleted")),
        (_, [volume]) => volume,
        _ => unreachable!("the volume that was changed"),
    };
    match &changed.change {
        VolumeChange::Cloned { of } => page.line(format!("volume {name} created as a clone of {of}")),
        &VolumeChange::Created { thin } => page.line(format!(
            "volume {name}: {} over {} drives, interleave {}, {} usable{}",
            volume.layout,
            volume.columns,
            ByteSize(volume.interleave_bytes),
            ByteSize(volume.capacity_bytes),
            if thin { ", thin" } else { "" }
        )),
        &VolumeChange::Resized { from_bytes } => {
            let (old, new) = (ByteSize(from_bytes), ByteSize(volume.capacity_bytes));
            page.line(match old == new {
                true => format!("volume {name}: size unchanged, {new}"),
                false => format!("volume {name} resized from {old} to {new}"),
            });
        }
        &VolumeChange::Converted { is_served } => converted(changed, volume, is_served, page),
        &VolumeChange::Pinned(pin) => pinned(changed, volume, pin, page),
        &VolumeChange::Set { is_served } => set(changed, volume, is_served, page),
        VolumeChange::Deleted => unreachable!("returned above"),
    }
}

fn converted(changed: &VolumeChanged, volume: &VolumeReport, is_served: bool, page: &mut Page) {
    let (name, drives) = (&changed.name, volume.columns);
    let wait = format!("`stripewise pool wait {} convert`", name.pool);
    let how = match is_served {
        true => format!("{wait} waits until the daemon has done it"),
        false => format!("queued, and not running: no daemon serves the pool; {wait} does it now"),
    };
    match &volume.conversion {
        Some(conversion) if conversion.is_cancelled => {
            page.line(format!(
                "converting volume {name} back to {} over {drives} drives; {:.1} % done",
                volume.layout, conversion.percent
            ));
            page.line(how);
        }
        Some(conversion) => {
            page.line(format!(
                "converting volume {name} from {} over {} drives to {} over {drives}",
                conversion.from_layout, conversion.from_columns, volume.layout
            ));
            page.line(format!("{how}; `stripewise volume convert {name} --cancel` cancels it"));
        }
        None => page.line(format!("volume {name} is now {} over {drives} drives", volume.layout)),
    }
}

fn set(changed: &VolumeChanged, volume: &VolumeReport, is_served: bool, page: &mut Page) {
    let name = &changed.name;
    match &volume.snapshot_schedule {
        Some(schedule) => page.line(format!("volume {name} {}", schedule_in_words(schedule))),
        None => page.line(format!("volume {name}: no automatic snapshots")),
    }
    if volume.snapshot_schedule.is_some() && !is_served {
        page.line("no daemon serves the pool: they are taken while one does (`stripewise serve`)");
    }
}

fn pinned(changed: &VolumeChanged, volume: &VolumeReport, pin: Pin, page: &mut Page) {
    let name = &changed.name;
    page.line(match pin {
        Pin::Fast => format!("volume {name} pinned to fast drives"),
        Pin::Slow => format!("volume {name} pinned to data drives"),
        Pin::None => format!("volume {name} not pinned; frequently used rows move to fast drives"),
    });
    let tiers = &volume.tiers;
    let is_elsewhere = match pin {
        Pin::Fast => tiers.data_rows + tiers.mixed_rows > 0,
        Pin::Slow => tiers.fast_rows + tiers.mixed_rows > 0,
        Pin::None => false,
    };
    if is_elsewhere {
        page.line(format!(
            "its rows have not moved yet; run `stripewise pool wait {} tier` to move them now",
            name.pool
        ));
    }
}

/// Prints the number of bytes written.
pub(super) fn written(written: &VolumeWritten, page: &mut Page) {
    page.line(format!(
        "{} written to {} at {}",
        counted(written.written_bytes as usize, "byte"),
        written.volume,
        written.offset_bytes
    ));
}
