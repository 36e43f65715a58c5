//! Tables in the form of `studies/`: one value a row, its unit in the heading (`mb_per_s`) or in a
//! column `unit`.
//!
//! Expects other text before the headings, semicolons or tabs, decimal commas, empty values, and
//! values that can be two numbers, which are refused.

use super::kit::{Figures, Mark, Numbers, is_absent};
use super::table::{Headings, fields_by, fields_of_any, separator_of};
use super::{ImportError, broken};
use crate::records::record::{MeasurementRecord, Operation, RunRecord, Unit};

const FORMAT: &str = "CSV in the form of studies/";

/// Columns that say something about a value and are no part of its name.
const BESIDE: [&str; 6] = ["value", "mb_per_s", "unit", "notes", "certainty", "study"];

/// Reads the table in a text, from its line of headings on; `None` if it has none.
pub(super) fn read(text: &str) -> Result<Option<RunRecord>, ImportError> {
    let headings_of = |line: &str| Headings::of_fields(fields_of_any(line));
    let fits = |line: &str| {
        let headings = headings_of(line);
        headings.has("mb_per_s") || (headings.has("value") && headings.has("unit"))
    };
    let Some(heading_at) = text.lines().position(fits) else { return Ok(None) };
    let heading = text.lines().nth(heading_at).expect("found above");
    let (headings, separator) = (headings_of(heading), separator_of(heading));
    let rows = || {
        let lines = text.lines().enumerate().skip(heading_at + 1);
        lines
            .filter(|(_, line)| !line.trim().is_empty())
            .map(|(at, line)| (at + 1, fields_by(line, separator)))
    };
    let value_of = |row: &[String]| -> (String, String) {
        let get = |name: &str| headings.get(row, name).unwrap_or_default().to_owned();
        if headings.has("mb_per_s") {
            (get("mb_per_s"), "MB/s".to_owned())
        } else {
            (get("value"), get("unit"))
        }
    };
    let values: Vec<String> = rows().map(|(_, row)| value_of(&row).0).collect();
    // A file with semicolons comes from a locale whose decimal mark is the comma.
    let otherwise =
        (separator == ';').then_some(Mark::Comma).filter(|_| values.iter().any(|value| value.contains(',')));
    let numbers = Numbers::of(values.iter().map(String::as_str), otherwise);
    let mut record = RunRecord { tool: "table".into(), profile: "table".into(), ..RunRecord::default() };
    let (mut figures, mut absent, mut other, mut text_lines) = (Figures::default(), 0, 0, 0);
    for (line, row) in rows() {
        // A prompt, or a remark under the table.
        if row.len() == 1 && headings.names().len() > 1 {
            text_lines += 1;
            continue;
        }
        if row.len() != headings.names().len() {
            let (has, should) = (row.len(), headings.names().len());
            return Err(broken(
                FORMAT,
                format!("line {line} has {has} fields, the line of headings {should}"),
            ));
        }
        let (text, unit) = value_of(&row);
        if is_absent(&text) {
            absent += 1;
            continue;
        }
        let Some((unit, scale)) = unit_of(&unit) else {
            other += 1;
            continue;
        };
        let value = match numbers.read(&text) {
            Some(value) => value * scale,
            None if text.starts_with(|letter: char| letter.is_ascii_digit()) => {
                let why = format!(
                    "line {line}: `{text}` is no number, or can be two: with a decimal comma or without"
                );
                return Err(broken(FORMAT, why));
            }
            None => {
                other += 1;
                continue;
            }
        };
        let empty = described(&headings, &row, unit);
        // Rows that differ in nothing but their value are runs of one measurement.
        let origin = headings.get(&row, "run").unwrap_or_default();
        figures.add(empty.with_runs(vec![value]), origin);
    }
    if figures.is_empty() {
        return Err(broken(FORMAT, "no row has a value in MB/s, IOPS, /s, s, ms, us or percent"));
    }
    if absent > 0 {
        record.notes.push(format!("rows without a value are left out: {absent}"));
    }
    if text_lines > 0 {
        record.notes.push(format!("lines without columns are left out: {text_lines}"));
    }
    if other > 0 {
        record.notes.push(format!("rows with another unit or a text for a value are left out: {other}"));
    }
    record.measurements = figures.finish()?;
    Ok(Some(record))
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
        "%" | "%cpu" | "% cpu" | "percent" => (Unit::CpuPercent, 1.0),
        _ => return None,
    })
}

fn described(headings: &Headings, row: &[String], unit: Unit) -> MeasurementRecord {
    let parts = headings
        .names()
        .iter()
        .zip(row)
        .filter(|(name, value)| !BESIDE.contains(&name.as_str()) && !value.trim().is_empty());
    let all = || parts.map(|(_, value)| value.trim()).collect::<Vec<_>>().join(" ");
    // `lab export` names the figure.
    let is_export = ["run", "sample"].iter().all(|name| headings.has(name));
    let named = headings.get(row, "measurement").filter(|_| is_export);
    let name = named.map_or_else(all, str::to_owned);
    let whole = |name: &str| headings.get(row, name).and_then(|text| text.parse::<u32>().ok());
    let op = match headings.get(row, "op").or_else(|| headings.get(row, "workload")) {
        Some("read" | "seq_read") => Operation::Read,
        Some("write" | "seq_write") => Operation::Write,
        other => {
            let known = other.map(|text| serde_json::from_value(text.into()));
            known.and_then(Result::ok).unwrap_or(Operation::Mixed)
        }
    };
    let size = |name: &str| headings.get(row, name).and_then(|text| Numbers::default().read(text));
    let block_bytes = size("block_kib").map(|kib| kib * 1024.0).or_else(|| size("block_bytes"));
    MeasurementRecord {
        block_bytes: block_bytes.map(|bytes| bytes as u64),
        queue_depth: whole("queue_depth"),
        workers: whole("threads").or_else(|| whole("workers")),
        unit,
        ..MeasurementRecord::empty(name, op)
    }
}
