//! Tables in the form of `studies/`: one value a row, its unit in the heading (`mb_per_s`) or in a
//! column `unit`.

use std::collections::BTreeMap;

use super::table::{Headings, fields};
use super::{ImportError, MAX_MEASUREMENTS, broken, number, too_many_figures};
use crate::records::record::{MeasurementRecord, Operation, RunRecord, Unit};

const FORMAT: &str = "CSV in the form of studies/";

/// Columns that say something about a value and are no part of its name.
const BESIDE: [&str; 6] = ["value", "mb_per_s", "unit", "notes", "certainty", "study"];

pub(super) fn fits(text: &str) -> bool {
    let headings = Headings::of(text.lines().next().unwrap_or_default());
    headings.has("mb_per_s") || (headings.has("value") && headings.has("unit"))
}

pub(super) fn read(text: &str) -> Result<RunRecord, ImportError> {
    let mut lines = text.lines();
    let headings = Headings::of(lines.next().unwrap_or_default());
    let mut record = RunRecord { tool: "table".into(), profile: "table".into(), ..RunRecord::default() };
    // Rows that differ in nothing but their value are runs of one measurement.
    let mut runs: BTreeMap<String, (MeasurementRecord, Vec<f64>)> = BTreeMap::new();
    let mut order = Vec::new();
    for (at, line) in lines.enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let (row, number_of_line) = (fields(line), at + 2);
        if row.len() != headings.names().len() {
            return Err(broken(
                FORMAT,
                format!(
                    "line {number_of_line} has {} fields, the first line {}",
                    row.len(),
                    headings.names().len()
                ),
            ));
        }
        let (text, unit) = match headings.get(&row, "mb_per_s") {
            Some(text) => (text, "MB/s"),
            None => (
                headings.get(&row, "value").unwrap_or_default(),
                headings.get(&row, "unit").unwrap_or_default(),
            ),
        };
        let Some((value, unit)) =
            number(text).zip(unit_of(unit)).map(|(value, (unit, scale))| (value * scale, unit))
        else {
            continue;
        };
        let (name, empty) = described(&headings, &row, unit);
        let (_, values) = runs.entry(name.clone()).or_insert_with(|| {
            order.push(name);
            (empty, Vec::new())
        });
        values.push(value);
        if order.len() > MAX_MEASUREMENTS {
            return Err(too_many_figures());
        }
    }
    for name in order {
        let (empty, values) = runs.remove(&name).expect("entered above");
        record.measurements.push(empty.with_runs(values));
    }
    if record.measurements.is_empty() {
        return Err(broken(FORMAT, "no row has a value in MB/s, IOPS, /s, s, ms, us or percent"));
    }
    Ok(record)
}

fn unit_of(text: &str) -> Option<(Unit, f64)> {
    Some(match text.to_lowercase().as_str() {
        "mb/s" => (Unit::MbPerS, 1.0),
        "mib/s" => (Unit::MbPerS, 1.048_576),
        "kb/s" | "k/sec" | "kib/s" => (Unit::MbPerS, 1024.0 / 1e6),
        "iops" | "/s" | "1/s" | "/sec" | "files/s" | "transactions/s" => (Unit::PerSecond, 1.0),
        "s" => (Unit::Seconds, 1.0),
        "us" => (Unit::LatencyUs, 1.0),
        "ms" => (Unit::LatencyUs, 1e3),
        "%" | "%cpu" | "percent" => (Unit::CpuPercent, 1.0),
        _ => return None,
    })
}

fn described(headings: &Headings, row: &[String], unit: Unit) -> (String, MeasurementRecord) {
    let parts = headings
        .names()
        .iter()
        .zip(row)
        .filter(|(name, value)| !BESIDE.contains(&name.as_str()) && !value.trim().is_empty());
    let name = parts.map(|(_, value)| value.trim()).collect::<Vec<_>>().join(" ");
    let whole = |name: &str| headings.get(row, name).and_then(|text| text.parse::<u32>().ok());
    let op = match headings.get(row, "op").or_else(|| headings.get(row, "workload")) {
        Some("read" | "seq_read") => Operation::Read,
        Some("write" | "seq_write") => Operation::Write,
        _ => Operation::Mixed,
    };
    let block_kib = headings.get(row, "block_kib").and_then(number);
    let found = MeasurementRecord {
        block_bytes: block_kib.map(|kib| (kib * 1024.0) as u64),
        queue_depth: whole("queue_depth"),
        workers: whole("threads"),
        unit,
        ..MeasurementRecord::empty(name.clone(), op)
    };
    (name, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_the_studies_are_read() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies");
        for (file, least) in [
            ("000-table-A1-single-disk.csv", 20),
            ("002-table-7-random-light-240gb.csv", 20),
            ("004-table-9-usb-das.csv", 40),
        ] {
            let text = std::fs::read_to_string(format!("{folder}/{file}")).expect(file);
            assert!(fits(&text), "{file}");
            let record = read(&text).expect(file);
            assert!(record.measurements.len() >= least, "{file}: {}", record.measurements.len());
        }
    }

    #[test]
    fn equal_rows_become_runs_and_short_rows_fail() {
        let text =
            "config,op,queue_depth,value,unit\na,read,4,100,MB/s\na,read,4,102,MB/s\na,write,4,50,IOPS\n";
        let record = read(text).expect("a table");
        assert_eq!(record.measurements[0].runs, [100.0, 102.0]);
        assert_eq!(record.measurements[0].queue_depth, Some(4));
        assert_eq!(record.measurements[1].iops, Some(50.0));
        let error = read("a,value,unit\nx,1\n").expect_err("refused").to_string();
        assert!(error.contains("line 2 has 2 fields"), "{error}");
    }
}
