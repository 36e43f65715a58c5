//! I/O statistics of drives and volumes as tables.

use stripewise_control::pools::load::{Interval, Load};
use stripewise_control::report::DriveState;
use stripewise_control::size::ByteSize;
use stripewise_drive::Cause;

use crate::printer::{Page, Style, Table, plain};

/// Prints the result.
pub(super) fn words(load: &Load, page: &mut Page) {
    if !load.running {
        page.line(format!("no process has pool {} open; these are the requests of this command", load.pool));
    }
    for interval in &load.intervals {
        print_interval(interval, load.shows_causes, page);
    }
}

/// Prints the statistics of an interval.
pub(crate) fn print_interval(interval: &Interval, causes: bool, page: &mut Page) {
    if interval.seconds > 0.0 {
        page.line(format!("{:.1} s", interval.seconds));
    }
    let mut table = Table::new(&[
        "DRIVE",
        "ROLE",
        "STATE",
        ">REQUESTS",
        ">PER S",
        ">READ",
        ">MB/S",
        ">WRITTEN",
        ">MB/S",
        ">BUSY",
        ">QUEUE",
    ])
    .indented();
    for drive in &interval.drives {
        table.row([
            plain(&drive.path),
            plain(&drive.role),
            (
                drive.state.to_string(),
                if drive.state == DriveState::Online { Style::Plain } else { Style::Warning },
            ),
            plain(drive.requests.to_string()),
            plain(format!("{:.0}", drive.requests_per_s)),
            plain(ByteSize(drive.read_bytes).to_string()),
            plain(format!("{:.1}", drive.read_mb_per_s)),
            plain(ByteSize(drive.written_bytes).to_string()),
            plain(format!("{:.1}", drive.write_mb_per_s)),
            plain(format!("{:.0} %", drive.busy_percent)),
            plain(drive.queued.to_string()),
        ]);
    }
    page.table(&table);
    if causes {
        page.line("");
        page.table(&cause_table(interval));
    }
    if interval.volumes.is_empty() {
        return;
    }
    let mut table = Table::new(&[
        "VOLUME",
        "OPERATION",
        ">REQUESTS",
        ">PER S",
        ">MB/S",
        ">MEAN",
        ">P99 UP TO",
        ">FAILED",
    ])
    .indented();
    for volume in &interval.volumes {
        let p99 = volume.latency_us.p99_at_most;
        table.row([
            plain(&volume.volume),
            plain(&volume.operation),
            plain(volume.requests.to_string()),
            plain(format!("{:.0}", volume.requests_per_s)),
            plain(format!("{:.1}", volume.mb_per_s)),
            plain(format!("{:.2} ms", volume.latency_us.mean / 1e3)),
            plain(p99.map_or_else(|| "more".to_owned(), |us| format!("{} ms", us / 1e3))),
            plain(volume.failed.to_string()),
        ]);
    }
    page.line("");
    page.table(&table);
}

fn cause_table(interval: &Interval) -> Table {
    let head = ["DRIVE", "CAUSE", ">REQUESTS", ">BYTES", ">POSITIONS", ">PER S"];
    let mut table = Table::new(&head).indented();
    for drive in &interval.drives {
        for counts in &drive.causes {
            let cause = Cause::ALL.into_iter().find(|cause| cause.name() == counts.cause);
            table.row([
                plain(&drive.path),
                plain(cause.map_or_else(|| counts.cause.clone(), |cause| cause.words().to_owned())),
                plain(counts.requests.to_string()),
                plain(ByteSize(counts.bytes).to_string()),
                plain(counts.positions.to_string()),
                plain(format!("{:.0}", counts.positions_per_s)),
            ]);
        }
    }
    table
}
