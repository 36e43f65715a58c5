//! What was done to a volume, in words.

use stripewise_control::report::{VolumeReport, counted};
use stripewise_control::response::{VolumeChange, VolumeChanged, VolumeWritten};
use stripewise_control::size::ByteSize;
use stripewise_engine::pool::Pin;

use crate::printer::Page;

/// The result.
pub(super) fn words(changed: &VolumeChanged, page: &mut Page) {
    let name = &changed.name;
    let volume = match (&changed.change, changed.volumes.as_slice()) {
        (VolumeChange::Deleted, _) => return page.line(format!("volume {name} is deleted")),
        (_, [volume]) => volume,
        _ => unreachable!("the volume that was changed"),
    };
    match changed.change {
        VolumeChange::Created { thin } => page.line(format!(
            "volume {name}: {} over {} drives, interleave {}, {} usable{}",
            volume.layout,
            volume.columns,
            ByteSize(volume.interleave_bytes),
            ByteSize(volume.capacity_bytes),
            if thin { ", thin" } else { "" }
        )),
        VolumeChange::Resized { from_bytes } => {
            let (old, new) = (ByteSize(from_bytes), ByteSize(volume.capacity_bytes));
            page.line(match old == new {
                true => format!("volume {name} holds {new}, as before"),
                false => format!("volume {name} holds {new} now; it was {old}"),
            });
        }
        VolumeChange::Converted => converted(changed, volume, page),
        VolumeChange::Pinned(pin) => pinned(changed, volume, pin, page),
        VolumeChange::Deleted => unreachable!("told above"),
    }
}

fn converted(changed: &VolumeChanged, volume: &VolumeReport, page: &mut Page) {
    let (name, drives) = (&changed.name, volume.columns);
    match &volume.conversion {
        Some(conversion) if conversion.is_cancelled => {
            page.line(format!(
                "volume {name} goes back to {} over {drives} drives; {:.1} % of the way is done",
                volume.layout, conversion.percent
            ));
            page.line(format!("`stripewise pool wait {} convert` does it", name.pool));
        }
        Some(conversion) => {
            page.line(format!(
                "volume {name} is to become {} over {drives} drives; it is {} over {} now",
                volume.layout, conversion.from_layout, conversion.from_columns
            ));
            page.line(format!(
                "`stripewise pool wait {} convert` does it; until then `stripewise volume convert {name} --cancel` takes it back",
                name.pool
            ));
        }
        None => page.line(format!("volume {name} is {} over {drives} drives now", volume.layout)),
    }
}

fn pinned(changed: &VolumeChanged, volume: &VolumeReport, pin: Pin, page: &mut Page) {
    let name = &changed.name;
    page.line(match pin {
        Pin::Fast => format!("volume {name} belongs on fast drives"),
        Pin::Slow => format!("volume {name} belongs on data drives"),
        Pin::None => format!("rows of volume {name} move to fast drives as they are used"),
    });
    let tiers = &volume.tiers;
    let is_elsewhere = match pin {
        Pin::Fast => tiers.data_rows + tiers.mixed_rows > 0,
        Pin::Slow => tiers.fast_rows + tiers.mixed_rows > 0,
        Pin::None => false,
    };
    if is_elsewhere {
        page.line(format!(
            "its rows are still to be moved; `stripewise pool wait {} tier` does it",
            name.pool
        ));
    }
}

/// Bytes that were written.
pub(super) fn written(written: &VolumeWritten, page: &mut Page) {
    page.line(format!(
        "{} written to {} at {}",
        counted(written.written_bytes as usize, "byte"),
        written.volume,
        written.offset_bytes
    ));
}
