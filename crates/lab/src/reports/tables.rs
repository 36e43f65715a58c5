//! The tables of an evaluation as plain data, and their text form for a terminal. The report shows
//! the same tables.
//!
//! The main table has the form of study 004's Table 3 (rows are layouts, columns the states with
//! SW, SR and M each, then the rebuild); the second is "% of a single drive" as in study 000; the
//! last puts the same share from study 004 beside it.

use std::collections::BTreeMap;

use stripewise_drive::{Cause, CauseCounts, CauseTable};

use crate::records::results::{ArrayResult, Evaluation, Measurement, RebuildKind, Remark, Severity, State};
pub(crate) use crate::reports::figures::duration;
pub use crate::reports::figures::{bytes, milliseconds, number, time_text};
use crate::reports::report::verdict::verdict;

/// Columns under one heading.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnGroup {
    /// Heading; empty if the columns need none.
    pub title: String,
    /// Headings of the columns.
    pub columns: Vec<String>,
}

/// One table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Title, with the unit.
    pub title: String,
    /// Columns; the first column of the first group holds the row's name.
    pub groups: Vec<ColumnGroup>,
    /// Rows of cells, one per column; `!` at a cell's end points to a remark.
    pub rows: Vec<Vec<String>>,
}

/// Text of a cell without a figure.
const NOTHING: &str = "–";

/// Name of a workload in a table's head.
pub(crate) fn short_name(workload: &str) -> &str {
    match workload {
        "seq_write" => "SW",
        "seq_read" => "SR",
        "mixed" => "M",
        other => other,
    }
}

impl Table {
    /// True if any cell after the first group holds a figure.
    pub(crate) fn has_figures(&self) -> bool {
        let first = self.groups.first().map_or(0, |group| group.columns.len());
        self.rows.iter().any(|row| row.iter().skip(first).any(|cell| cell != NOTHING))
    }

    /// Formats for a terminal: columns aligned, first column to the left, figures to the right.
    pub fn to_text(&self) -> String {
        let columns: Vec<&str> =
            self.groups.iter().flat_map(|group| group.columns.iter().map(String::as_str)).collect();
        let mut widths: Vec<usize> = columns.iter().map(|column| column.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut first = 0;
        for group in &self.groups {
            let last = first + group.columns.len() - 1;
            let inside: usize = widths[first..=last].iter().sum::<usize>() + 2 * (last - first);
            widths[last] += group.title.chars().count().saturating_sub(inside);
            first = last + 1;
        }
        let mut text = format!("{}\n", self.title);
        if self.groups.iter().any(|group| !group.title.is_empty()) {
            let (mut line, mut first) = (String::new(), 0);
            for group in &self.groups {
                let last = first + group.columns.len();
                let inside: usize = widths[first..last].iter().sum::<usize>() + 2 * (group.columns.len() - 1);
                let title = if group.title.is_empty() {
                    " ".repeat(inside)
                } else {
                    format!("{:─^inside$}", format!(" {} ", group.title))
                };
                line += &title;
                line += "  ";
                first = last;
            }
            text += line.trim_end();
            text.push('\n');
        }
        for row in std::iter::once(columns)
            .chain(self.rows.iter().map(|row| row.iter().map(String::as_str).collect()))
        {
            let cells = row.iter().zip(&widths).enumerate().map(|(index, (cell, &width))| {
                if index == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            text += cells.collect::<Vec<_>>().join("  ").trim_end();
            text.push('\n');
        }
        text
    }
}

/// Throughput in MB/s: rows are layouts, columns states and workloads, then the idle rebuild.
pub(crate) fn throughput_table(evaluation: &Evaluation) -> Table {
    let mut table =
        by_state(evaluation, "Throughput in MB/s, median of the runs", |cell| Some(number(cell.mb_per_s)));
    table
        .groups
        .push(ColumnGroup { title: "rebuild, idle".into(), columns: vec!["time".into(), "MB/s".into()] });
    for (row, array) in table.rows.iter_mut().zip(&evaluation.arrays) {
        row.push(array.rebuild_seconds.map_or(NOTHING.into(), duration));
        row.push(array.rebuild_mb_per_s.map_or(NOTHING.into(), number));
    }
    table
}

/// Every figure as a share of the same load on a single drive.
pub(crate) fn percent_table(evaluation: &Evaluation) -> Table {
    by_state(evaluation, "% of a single drive", |cell| {
        cell.percent_of_single.map(|percent| format!("{percent:.0}"))
    })
}

/// Processor time per amount of data moved.
pub(crate) fn cpu_table(evaluation: &Evaluation) -> Table {
    by_state(evaluation, "Processor seconds per GB moved (load generator included)", |cell| {
        cell.cpu_seconds_per_gb.map(|seconds| format!("{seconds:.2}"))
    })
}

/// Bytes transferred to and from the drives for each byte moved, rebuild included.
pub(crate) fn traffic_table(evaluation: &Evaluation) -> Table {
    by_state(evaluation, "Bytes to and from the drives per byte moved", |cell| {
        let bytes = cell.total_bytes();
        (bytes > 0.0).then(|| format!("{:.2}", cell.drive_traffic.bytes() as f64 / bytes))
    })
}

/// Requests to the drives by cause: requests and positions for each client request, and in idle
/// rebuilds for each MB rebuilt. `None` if nothing was counted by cause.
pub fn cause_table(evaluation: &Evaluation) -> Option<Table> {
    let mut found: Vec<([String; 3], f64, CauseTable)> = Vec::new();
    for array in &evaluation.arrays {
        for (state, cells) in &array.states {
            for workload in &evaluation.settings.workloads {
                let Some(cell) = cells.get(&workload.name) else { continue };
                let name = [array.layout.clone(), state.to_string(), short_name(&workload.name).to_owned()];
                found.push((name, cell.requests as f64, cell.drive_traffic.causes));
            }
        }
        let idle = array.rebuilds.iter().filter(|rebuild| rebuild.kind == RebuildKind::Idle);
        for rebuild in idle {
            let name = [array.layout.clone(), "rebuild, idle".into(), "a MB".into()];
            found.push((name, rebuild.rebuilt_bytes as f64 / 1e6, rebuild.drive_traffic.causes));
        }
    }
    let used: Vec<Cause> = Cause::ALL
        .into_iter()
        .filter(|cause| found.iter().any(|(_, _, causes)| causes.of(*cause).requests > 0))
        .collect();
    if used.is_empty() {
        return None;
    }
    let cell = |counts: CauseCounts, per: f64| match counts.requests {
        0 => NOTHING.to_owned(),
        _ => {
            format!(
                "{:.2} / {:.2}",
                counts.requests as f64 / per.max(1.0),
                counts.positions as f64 / per.max(1.0)
            )
        }
    };
    let rows = found.into_iter().map(|(name, per, causes)| {
        let of_causes = used.iter().map(|cause| cell(causes.of(*cause), per));
        name.into_iter().chain([cell(causes.total(), per)]).chain(of_causes).collect()
    });
    let own = ["layout", "state", "of", "all"].map(str::to_owned).to_vec();
    let causes = used.iter().map(|cause| cause.words().to_owned()).collect();
    Some(Table {
        title: "Requests / positions at the drives for each request of the load, and for each MB rebuilt"
            .into(),
        groups: vec![
            ColumnGroup { title: String::new(), columns: own },
            ColumnGroup { title: "by cause".into(), columns: causes },
        ],
        rows: rows.collect(),
    })
}

/// The 99th percentile of latency.
pub(crate) fn latency_table(evaluation: &Evaluation) -> Table {
    by_state(evaluation, "Latency in ms, 99th percentile", |cell| Some(milliseconds(cell.latency_us.p99)))
}

fn by_state(evaluation: &Evaluation, title: &str, show: impl Fn(&Measurement) -> Option<String>) -> Table {
    let workloads: Vec<&str> =
        evaluation.settings.workloads.iter().map(|workload| workload.name.as_str()).collect();
    let mut groups = vec![ColumnGroup {
        title: String::new(),
        columns: vec!["layout".into(), "drives".into(), "capacity".into()],
    }];
    groups.extend(State::ALL.map(|state| ColumnGroup {
        title: state.to_string(),
        columns: workloads.iter().map(|workload| short_name(workload).to_owned()).collect(),
    }));
    let row = |array: &ArrayResult| {
        let mut row = vec![array.layout.clone(), array.drives.to_string(), bytes(array.capacity_bytes)];
        for state in State::ALL {
            for workload in &workloads {
                let text = array.cell(state, workload).and_then(&show);
                let mark =
                    if text.is_some() && is_remarked(evaluation, array, state, workload) { "!" } else { "" };
                row.push(text.map_or(NOTHING.into(), |text| text + mark));
            }
        }
        row
    };
    Table { title: title.into(), groups, rows: evaluation.arrays.iter().map(row).collect() }
}

fn is_remarked(evaluation: &Evaluation, array: &ArrayResult, state: State, workload: &str) -> bool {
    evaluation.remarks.iter().any(|remark| {
        remark.severity >= Severity::Warning
            && remark.layout.as_deref() == Some(&array.layout)
            && remark.state == Some(state)
            && remark.workload.as_deref() == Some(workload)
    })
}

/// The published share of a single drive: study 004, Table 9 over Table 4, for the layouts
/// evaluated here.
pub(crate) fn published_table(evaluation: &Evaluation) -> Option<Table> {
    let singles = published(include_str!("../../../../studies/004-table-4-single-drive.csv"));
    let arrays = published(include_str!("../../../../studies/004-table-9-usb-das.csv"));
    let workloads: Vec<&str> =
        evaluation.settings.workloads.iter().map(|workload| workload.name.as_str()).collect();
    let mut rows = Vec::new();
    for array in &evaluation.arrays {
        let level = array.layout.to_uppercase();
        let mut systems: Vec<(&str, &str)> = Vec::new();
        for row in arrays.iter().filter(|row| row["level"] == level) {
            let system = (row["vendor"], row["model"]);
            if !systems.contains(&system) {
                systems.push(system);
            }
        }
        for (vendor, model) in systems {
            let mut cells = vec![array.layout.clone(), format!("{vendor} {model}")];
            for state in State::ALL {
                for workload in &workloads {
                    let found = arrays.iter().find(|row| {
                        (row["level"], row["vendor"], row["model"]) == (level.as_str(), vendor, model)
                            && row["state"] == state.to_string()
                            && row["workload"] == *workload
                    });
                    let percent = found.and_then(|row| {
                        let single = singles.iter().find(|single| {
                            single["disk_model"] == row["disk_model"] && single["workload"] == *workload
                        })?;
                        let (rate, single): (f64, f64) =
                            (row["mb_per_s"].parse().ok()?, single["mb_per_s"].parse().ok()?);
                        Some(format!("{:.0}", 100.0 * rate / single))
                    });
                    cells.push(percent.unwrap_or(NOTHING.into()));
                }
            }
            rows.push(cells);
        }
    }
    if rows.is_empty() || rows.iter().all(|row| row[2..].iter().all(|cell| cell == NOTHING)) {
        return None;
    }
    let mut groups =
        vec![ColumnGroup { title: String::new(), columns: vec!["layout".into(), "system".into()] }];
    groups.extend(State::ALL.map(|state| ColumnGroup {
        title: state.to_string(),
        columns: workloads.iter().map(|workload| short_name(workload).to_owned()).collect(),
    }));
    let title = "Published for comparison: % of a single drive in study 004 (hard drives behind controllers, ZFS, a NAS, USB)";
    Some(Table { title: title.into(), groups, rows })
}

/// Rows of a published table by column name. These files have no quoted commas before the columns
/// used here.
fn published(text: &'static str) -> Vec<BTreeMap<&'static str, &'static str>> {
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    lines.map(|line| head.iter().copied().zip(line.split(',')).collect()).collect()
}

/// The output of `evaluate`: matrix, shares, processor time, remarks.
pub fn summary_text(evaluation: &Evaluation) -> String {
    let mut text = verdict(evaluation) + "\n\n";
    for table in [throughput_table(evaluation), percent_table(evaluation), cpu_table(evaluation)] {
        if table.has_figures() {
            text += &table.to_text();
            text.push('\n');
        }
    }
    text += "SW, SR: sequential writes and reads of 1 MiB at depth 64. M: random 4 KiB to 2 MiB, half reads, 8 jobs at depth 64.\n";
    text += &format!(
        "{}; {} run{} per cell of at least {} s.\n",
        evaluation.settings.pace_text(),
        evaluation.settings.runs,
        if evaluation.settings.runs == 1 { "" } else { "s" },
        evaluation.settings.seconds_per_run,
    );
    if !evaluation.remarks.is_empty() {
        text += "\nRemarks\n";
        evaluation.remarks.iter().for_each(|remark| text += &remark_line(remark));
    }
    if let Some(disks) = &evaluation.on_disks {
        text += &format!("\nOn disks: {}\n{}", on_disks_text(disks), throughput_table(disks).to_text());
        on_arrays(disks).for_each(|remark| text += &remark_line(remark));
    }
    text
}

fn remark_line(remark: &Remark) -> String {
    let sign = match remark.severity {
        Severity::Error => "error",
        Severity::Warning => "!",
        Severity::Note => "-",
    };
    format!("  {sign} {}: {}\n", remark.subject(), remark.text)
}

/// Describes drives at a disk's pace.
pub(crate) fn on_disks_text(disks: &Evaluation) -> String {
    format!("{}, each with its own queue; virtual time, so nothing was stored.", disks.settings.drives)
}

/// Remarks on an evaluation's arrays, without those on the whole.
pub(crate) fn on_arrays(evaluation: &Evaluation) -> impl Iterator<Item = &Remark> {
    evaluation.remarks.iter().filter(|remark| remark.layout.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::{example, quiet};

    #[test]
    fn drive_requests_are_listed_by_cause() {
        let table = cause_table(&example()).expect("counted");
        let causes = &table.groups[1].columns;
        assert_eq!(*causes, ["client data", "region map"]);
        let row = table.rows.iter().find(|row| row[0] == "raid5" && row[2] == "SW").expect("a row");
        let per = example()
            .arrays
            .iter()
            .find(|array| array.layout == "raid5")
            .map(|array| array.cell(State::Normal, "seq_write").expect("a cell").requests as f64);
        let per = per.expect("an array");
        assert_eq!(row[4], format!("{:.2} / {:.2}", 1000.0 / per, 250.0 / per));
        let mut uncounted = example();
        for array in &mut uncounted.arrays {
            let cells = array.states.values_mut().flat_map(|cells| cells.values_mut());
            cells.for_each(|cell| cell.drive_traffic.causes = CauseTable::default());
            let rebuilds = array.rebuilds.iter_mut();
            rebuilds.for_each(|rebuild| rebuild.drive_traffic.causes = CauseTable::default());
        }
        assert_eq!(cause_table(&uncounted), None);
    }

    #[test]
    fn matrix_has_the_form_of_study_004() {
        let text = throughput_table(&quiet()).to_text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("─ normal ─") && lines[1].contains("rebuild, idle"), "{text}");
        assert_eq!(
            lines[2].split_whitespace().collect::<Vec<_>>(),
            [
                "layout", "drives", "capacity", "SW", "SR", "M", "SW", "SR", "M", "SW", "SR", "M", "time",
                "MB/s"
            ]
        );
        let raid5: Vec<&str> = lines[5].split_whitespace().collect();
        assert_eq!(
            raid5,
            [
                "raid5", "4", "3", "GiB", "600", "800", "360", "420", "560", "252", "300", "400", "180",
                "5.5", "s", "195"
            ]
        );
        assert!(lines[3].starts_with("single ") && lines[3].contains("–"), "{text}");
        let ends: Vec<usize> = lines[2..].iter().map(|line| line.chars().count()).collect();
        assert!(ends.iter().all(|&end| end == ends[0]), "columns are aligned:\n{text}");
    }

    #[test]
    fn shares_refer_to_a_single_drive_under_same_load() {
        let table = percent_table(&quiet());
        assert_eq!(table.rows[0][3..6], ["100", "100", "100"]);
        assert_eq!(table.rows[2][3..6], ["300", "400", "300"]);
    }

    #[test]
    fn cells_with_a_remark_are_marked_and_it_is_printed() {
        let evaluation = example();
        let table = throughput_table(&evaluation);
        assert_eq!(table.rows[2][4], "800!");
        let text = summary_text(&evaluation);
        assert!(text.contains("! raid5, normal, seq_read: Limited by the processor"), "{text}");
        assert!(
            text.contains("each drive paced at 200MB/s,20000iops (auto); 3 runs per cell of at least 2 s"),
            "{text}"
        );
    }

    #[test]
    fn tables_without_figures_are_left_out() {
        let mut evaluation = quiet();
        for cell in
            evaluation.arrays.iter_mut().flat_map(|a| a.states.values_mut()).flat_map(|c| c.values_mut())
        {
            cell.cpu_seconds_per_gb = None;
        }
        assert!(!summary_text(&evaluation).contains("Processor"));
        assert!(summary_text(&quiet()).contains("Processor"));
    }

    #[test]
    fn study_004_is_shown_beside_our_shares() {
        let table = published_table(&quiet()).expect("raid5, raid10 and raid1 were published");
        let adaptec = &table.rows[0];
        assert_eq!(adaptec[..2], ["raid5", "Adaptec (Microchip) SmartRAID 3204-8i"]);
        // 736, 862 and 85 MB/s over 245, 245 and 57.
        assert_eq!(adaptec[2..5], ["300", "352", "149"]);
        let raid1 = table.rows.iter().find(|row| row[0] == "raid1" && row[1].starts_with("Adaptec")).unwrap();
        // Two drives of 8 TB, so over the single drive of 8 TB: 255 / 255.
        assert_eq!(raid1[2], "100");
        let mut none = quiet();
        none.arrays.truncate(2);
        assert_eq!(published_table(&none), None);
    }

    #[test]
    fn figures_are_formatted_readably() {
        assert_eq!(
            [number(1234.5), number(99.96), number(12.34), number(0.123), number(0.0)],
            ["1234", "100", "12.3", "0.123", "0"]
        );
        assert_eq!([number(0.016), number(4e-6), number(512_345.0)], ["0.016", "0.000004", "512,345"]);
        assert_eq!(
            [time_text(82.34), time_text(1_234.0), time_text(1_000_000.0), time_text(0.25)],
            ["82.3 µs", "1.23 ms", "1.00 s", "250 ns"]
        );
        assert_eq!([milliseconds(123.4), milliseconds(45_678.0)], ["0.123", "45.7"]);
        assert_eq!([bytes(512), bytes(3 << 30), bytes(1_500_000_000)], ["512 B", "3 GiB", "1.4 GiB"]);
        assert_eq!([duration(5.46), duration(75.2), duration(7384.0)], ["5.5 s", "1 min 15 s", "2 h 03 min"]);
    }
}
