//! The contents of a drive, as text.

use stripewise_control::drives::emptiness::UNKNOWN_DATA;
use stripewise_control::drives::hardware::{Hardware, SmartHealth};
use stripewise_control::report::{counted, word};
use stripewise_control::response::{DriveList, ListedDrive, ShownDrive};
use stripewise_control::size::ByteSize;
use stripewise_control::times::moment_text;

use crate::printer::{Page, Style, Table, plain};
use crate::report::{State, error_cell, used_in_words};

fn hardware_words(hardware: &Hardware, page: &mut Page) {
    let facts = [
        ("model", &hardware.model),
        ("firmware", &hardware.firmware),
        ("serial", &hardware.serial),
        ("slot", &hardware.slot),
    ];
    for (name, fact) in facts {
        if let Some(fact) = fact {
            page.field(name, fact, Style::Plain);
        }
    }
    if let Some(degrees) = hardware.temperature_c {
        page.field("temperature", format!("{degrees} degrees Celsius"), Style::Plain);
    }
    let counters = hardware.smart_counters.iter();
    let counters: String = counters.map(|counter| format!("; {}: {}", counter.name, counter.value)).collect();
    match hardware.smart {
        Some(SmartHealth::Passed) => page.field("SMART", format!("passed{counters}"), Style::Good),
        Some(SmartHealth::Failed) => {
            page.field("SMART", format!("failed: it expects to fail soon{counters}"), Style::Bad);
        }
        None => {}
    }
}

/// Columns of the list of drives.
pub(crate) const DRIVE_COLUMNS: [&str; 13] = [
    "POOL", "DRIVE", "ROLE", "STATE", ">SIZE", ">USED", ">READ", ">WRITE", ">CKSUM", "SERIAL", "SLOT",
    "MODEL", "ID",
];

/// Prints the drives of pools.
pub(super) fn list(of: &DriveList, page: &mut Page) {
    let mut table = Table::new(&DRIVE_COLUMNS);
    let or_dash = |text: &Option<String>| plain(text.as_deref().unwrap_or("-"));
    for ListedDrive { pool, drive } in &of.drives {
        table.row([
            plain(pool),
            plain(&drive.path),
            plain(&drive.role),
            drive.state.cell(),
            plain(ByteSize(drive.capacity_bytes).to_string()),
            plain(used_in_words(drive)),
            error_cell(drive.read_errors),
            error_cell(drive.write_errors),
            error_cell(drive.checksum_errors),
            or_dash(&drive.hardware.serial),
            or_dash(&drive.hardware.slot),
            or_dash(&drive.hardware.model),
            plain(&drive.id),
        ]);
    }
    if !of.drives.is_empty() {
        page.list(table);
    }
}

/// Prints one drive.
pub(super) fn words(drive: &ShownDrive, page: &mut Page) {
    page.field("drive", drive.path.display().to_string(), Style::Strong);
    page.field(
        "size",
        format!("{} ({}, {} bytes)", ByteSize(drive.capacity_bytes), drive.kind, drive.capacity_bytes),
        Style::Plain,
    );
    if let Some(pace) = &drive.pace {
        page.field("pace", pace, Style::Plain);
    }
    hardware_words(&drive.hardware, page);
    let Some(label) = &drive.superblock else {
        match drive.holds.as_slice() {
            [] => page.field("contents", "empty", Style::Plain),
            [one] if one == UNKNOWN_DATA => {
                page.field("contents", "none recognised, and not empty", Style::Warning);
            }
            holds => page.field("contents", holds.join(", "), Style::Warning),
        }
        return;
    };
    page.field("pool", format!("{} ({})", label.pool_name, label.pool_id), Style::Plain);
    if let Some(unix_s) = label.destroyed_unix_s {
        let (pool, when) = (&label.pool_name, moment_text(unix_s.saturating_mul(1000)));
        let text = format!(
            "member of the destroyed pool {pool} (destroyed {when}); free for another use. \
             `stripewise pool import --destroyed {pool}` brings the pool back until then"
        );
        page.field("contents", text, Style::Warning);
    }
    page.field("id", label.drive_id.to_string(), Style::Plain);
    page.field("role", word(label.role), Style::Plain);
    match (drive.belongs, label.state.as_str()) {
        (Some(false), _) => page.field("state", "replaced: no longer a drive of the pool", Style::Warning),
        (_, "online") => page.field("state", "online", Style::Good),
        (_, other) => page.field("state", other, Style::Warning),
    }
    match label.intact {
        true => page.field("superblock", "the same at both ends", Style::Good),
        false => page.field(
            "superblock",
            "whole at one end only; the pool rewrites the other end when it is used",
            Style::Warning,
        ),
    }
    page.field("format", format!("version {}", label.format_version), Style::Plain);
    page.field("generation", label.generation.to_string(), Style::Plain);
    let slab = ByteSize(label.slab_bytes);
    page.field("slabs", format!("{} of {slab}, {} in use", label.slabs, label.used_slabs), Style::Plain);
    page.field("pool drives", label.drives.len().to_string(), Style::Plain);
    for volume in label.volumes.iter().filter(|volume| volume.on_this_drive) {
        let text = format!(
            "{} ({} over {} drives, {}), {} of it here",
            volume.name,
            volume.layout,
            volume.columns,
            ByteSize(volume.capacity_bytes),
            counted(volume.slabs_on_this_drive as usize, "slab"),
        );
        page.field("volume", text, Style::Plain);
    }
}
