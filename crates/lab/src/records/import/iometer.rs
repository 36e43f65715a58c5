//! IOMeter's results file: sections that begin with an apostrophe, and one table of figures per
//! test.
//!
//! Versions up to 2008 call 2^20 bytes a MB; 1.1 names its columns `MBps (Binary)` and
//! `MBps (Decimal)`. Expects files that a spreadsheet saved again: with semicolons or tabs, quotes,
//! decimal commas and other dates.

use super::kit::{Figures, Mark, Numbers, is_absent};
use super::table::{Headings, fields_by, separator_of};
use super::{ImportError, broken};
use crate::records::dates::instant;
use crate::records::record::{Latencies, MeasurementRecord, Operation, RunRecord, Unit};

const FORMAT: &str = "IOMeter CSV";

/// An access specification's block length and read share, if it has one line.
struct Access {
    name: String,
    block_bytes: Option<u64>,
    read_percent: Option<f64>,
}

/// A line of the file: its number and fields.
type Row = (usize, Vec<String>);

/// Reads all tables of a text; `None` if it has none.
pub(super) fn read(text: &str) -> Result<Option<RunRecord>, ImportError> {
    let is_heading = |line: &&str| {
        let line = line.trim_start_matches([' ', '"', '\'']);
        line.starts_with("Target Type") && line.contains("Access Specification Name")
    };
    let Some(heading) = text.lines().find(is_heading) else {
        return match text
            .lines()
            .any(|line| line.trim_start_matches('"').starts_with("'Access specifications"))
        {
            true => Err(broken(FORMAT, "it has no table of results (`'Target Type`)")),
            false => Ok(None),
        };
    };
    let separator = separator_of(heading);
    let row = |(at, line): (usize, &str)| -> Row {
        (at + 1, fields_by(line, separator).iter().map(|field| field.trim().to_owned()).collect())
    };
    let rows: Vec<Row> = text.lines().enumerate().map(row).collect();
    let figures = || rows.iter().filter(|(_, row)| is_total(row)).flat_map(|(_, row)| row.iter().skip(3));
    // Semicolons come from a locale whose decimal mark is the comma.
    let otherwise = (separator == ';').then_some(Mark::Comma);
    let numbers = Numbers::of(
        figures().map(String::as_str),
        otherwise.filter(|_| figures().any(|text| text.contains(','))),
    );
    table(&rows, numbers).map(Some)
}

fn is_total(row: &[String]) -> bool {
    row[0] == "ALL" && row.len() > 3
}

fn table(rows: &[Row], numbers: Numbers) -> Result<RunRecord, ImportError> {
    let mut record = RunRecord { tool: "IOMeter".into(), profile: "iometer".into(), ..RunRecord::default() };
    let (mut accesses, mut headings): (Vec<Access>, Option<Headings>) = (Vec::new(), None);
    let mut figures = Figures::default();
    for (at, (line, row)) in rows.iter().enumerate() {
        let next = || rows.get(at + 1).map_or(&[][..], |(_, next)| next.as_slice());
        let first_of_next = || next().first().cloned().unwrap_or_default();
        match row[0].trim_start_matches('\'') {
            "Version" => record.tool = format!("IOMeter {}", first_of_next()),
            // Each test has its own; the first is the start of the run.
            "Time Stamp" if record.date.is_empty() => record.date = instant(&first_of_next()),
            "Access specification name" => {
                accesses.push(Access { name: first_of_next(), block_bytes: None, read_percent: None });
            }
            "size" => set_access(accesses.last_mut(), next(), numbers),
            "Target Type" => headings = Some(Headings::of_fields(row.clone())),
            "ALL" if is_total(row) => {
                let headings = headings
                    .as_ref()
                    .ok_or_else(|| broken(FORMAT, format!("line {line}: figures without headings")))?;
                let figure = row_figure(headings, row, &accesses, numbers)
                    .map_err(|why| broken(FORMAT, format!("line {line}: {why}")))?;
                let errors = headings.get(row, "errors").and_then(|text| numbers.read(text));
                if let Some(errors) = errors.filter(|errors| *errors > 0.0) {
                    record.notes.push(format!("{}: errors during the run: {errors}", figure.name));
                }
                figures.add(figure, &line.to_string());
            }
            _ => {}
        }
    }
    if figures.is_empty() {
        return Err(broken(FORMAT, "it has no line `ALL` with figures"));
    }
    record.measurements = figures.finish()?;
    Ok(record)
}

fn set_access(access: Option<&mut Access>, row: &[String], numbers: Numbers) {
    let Some(access) = access else { return };
    let figure = |at: usize| row.get(at).and_then(|text| numbers.read(text));
    // Lists of several lengths have no one length.
    if figure(1).is_some_and(|share| share >= 100.0) {
        access.block_bytes = figure(0).map(|bytes| bytes as u64);
        access.read_percent = figure(2);
    }
}

fn row_figure(
    headings: &Headings,
    row: &[String],
    accesses: &[Access],
    numbers: Numbers,
) -> Result<MeasurementRecord, String> {
    let figure = |name: &str| -> Result<Option<f64>, String> {
        match headings.get(row, name) {
            Some(text) if !is_absent(text) => match numbers.read(text) {
                None => Err(format!("`{text}` under `{name}` is no figure, or could be two")),
                found => Ok(found),
            },
            _ => Ok(None),
        }
    };
    let first = |names: [&str; 3]| names.into_iter().find_map(|name| figure(name).transpose()).transpose();
    let iops = figure("iops")?.ok_or("no figure under `IOps`")?;
    let mb_per_s = match figure("mbps (decimal)")? {
        Some(decimal) => Some(decimal),
        None => first(["mbps", "mbps (binary)", "mibps (binary)"])?.map(|mib| mib * 1.048_576),
    };
    let name = headings.get(row, "access specification name").unwrap_or("access");
    let access = accesses.iter().find(|access| access.name == name);
    let op = match (figure("read iops")?, access.and_then(|access| access.read_percent)) {
        (Some(0.0), _) | (None, Some(0.0)) => Operation::Write,
        (Some(reads), _) if reads >= iops * 0.999_999 => Operation::Read,
        (None, Some(100.0)) => Operation::Read,
        _ => Operation::Mixed,
    };
    let ms = |name: &str| Ok::<_, String>(figure(name)?.filter(|ms| *ms > 0.0).map(|ms| ms * 1e3));
    let (mean, max) = (ms("average response time")?, ms("maximum response time")?);
    let outstanding = first(["queue depth", "# outstanding i/os", "outstanding i/os"])?;
    let found = MeasurementRecord {
        block_bytes: access.and_then(|access| access.block_bytes),
        queue_depth: outstanding.filter(|depth| *depth > 0.0).map(|depth| depth as u32),
        workers: figure("# workers")?.map(|count| count as u32),
        iops: Some(iops),
        latency_us: mean.map(|mean| Latencies { mean: Some(mean), max, ..Latencies::default() }),
        unit: Unit::MbPerS,
        ..MeasurementRecord::empty(name, op)
    };
    Ok(found.with_runs(vec![mb_per_s.ok_or("no figure under `MBps`")?]))
}
