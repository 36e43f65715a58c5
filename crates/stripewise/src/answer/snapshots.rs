//! Snapshots as text.

use stripewise_control::report::SnapshotReport;
use stripewise_control::response::{Differences, SnapshotChange, SnapshotReceived, SnapshotsChanged};
use stripewise_control::size::ByteSize;
use stripewise_control::times::moment_text;

use crate::printer::{Page, Table, plain};

/// Columns of a list of snapshots.
pub(crate) const SNAPSHOT_COLUMNS: [&str; 3] = ["SNAPSHOT", "CREATED", ">CAPACITY"];

/// Prints a list.
pub(super) fn list(snapshots: &[SnapshotReport], page: &mut Page) {
    if snapshots.is_empty() {
        return;
    }
    let mut table = Table::new(&SNAPSHOT_COLUMNS);
    for snapshot in snapshots {
        table.row([
            plain(format!("{}/{}@{}", snapshot.pool, snapshot.volume, snapshot.name)),
            plain(moment_text(snapshot.created_unix_ms)),
            plain(ByteSize(snapshot.capacity_bytes).to_string()),
        ]);
    }
    page.list(table);
}

/// Prints a change.
pub(super) fn changed(changed: &SnapshotsChanged, page: &mut Page) {
    for name in &changed.names {
        page.line(match changed.change {
            SnapshotChange::Created => format!("snapshot {name} taken"),
            SnapshotChange::Deleted => format!("snapshot {name} deleted"),
            SnapshotChange::RolledBack => format!("volume {} rolled back to {name}", name.volume),
        });
    }
}

/// Prints a received snapshot.
pub(super) fn received(received: &SnapshotReceived, page: &mut Page) {
    let SnapshotReport { pool, volume, name, .. } = &received.snapshot;
    let present = match received.present_bytes {
        0 => String::new(),
        present => format!(", of which {} were there already", ByteSize(present)),
    };
    let data = ByteSize(received.data_bytes);
    page.line(format!("snapshot {pool}/{volume}@{name} received: {data} of data{present}"));
}

/// Columns of a list of differences.
const DIFFERENCE_COLUMNS: [&str; 3] = [">OFFSET", ">LENGTH", "NOW"];

/// Prints differences. Offsets and lengths are bytes, for programs.
pub(super) fn differences(of: &Differences, page: &mut Page) {
    if of.ranges.is_empty() {
        return page.line("no difference");
    }
    let mut table = Table::new(&DIFFERENCE_COLUMNS);
    for range in &of.ranges {
        table.row([
            plain(range.offset_bytes.to_string()),
            plain(range.length_bytes.to_string()),
            plain(if range.has_data { "data" } else { "zeros" }),
        ]);
    }
    page.table(&table);
}
