//! CrystalDiskMark's text, versions 3 to 9, and KDiskMark's:
//! `SEQ 1MiB (Q=  8, T= 1):   560.563 MB/s [    534.6 IOPS] < 14932.41 us>`, before version 7
//! `Random Read 4KiB (Q= 32,T= 1) :    11.120 MB/s [  2714.8 IOPS]`.
//!
//! Expects texts without their title, several results in one file, decimal commas, and cells that
//! were not run, which are printed as 0.

use super::kit::{Figures, Mark, Numbers};
use super::{ImportError, broken};
use crate::records::dates::instant;
use crate::records::record::{Latencies, MeasurementRecord, Operation, RunRecord, Unit};

const FORMAT: &str = "CrystalDiskMark text";
/// Block size of versions 4 to 6, `Sequential Read (Q= 32,T= 1)`, which they do not print.
const SEQUENTIAL_WITH_QUEUE_BYTES: u64 = 128 << 10;
/// Block size of `Sequential Read` and `Sequential Read (T= 1)` before version 7, not printed.
const SEQUENTIAL_BYTES: u64 = 1 << 20;
/// Units of rates and their bytes.
const RATES: [(&str, f64); 5] =
    [(" MB/s", 1e6), (" MiB/s", 1_048_576.0), (" GB/s", 1e9), (" GiB/s", 1_073_741_824.0), (" KB/s", 1e3)];

/// Reads all results in a text; `None` if it has neither a title nor a row of this form.
pub(super) fn read(text: &str) -> Result<Option<RunRecord>, ImportError> {
    let has_title = text.lines().any(|line| title(line).is_some());
    let rows = || text.lines().enumerate().filter(|(_, line)| is_row(line));
    if rows().next().is_none() {
        return match has_title {
            true => Err(broken(FORMAT, "it has no line with a figure")),
            false => Ok(None),
        };
    }
    // Rates have three decimals, so a lone comma before three digits is a decimal mark.
    let numbers = Numbers::of(rows().flat_map(|(_, line)| figures_of(line)), Some(Mark::Comma));
    let mut record = RunRecord {
        tool: text.lines().find_map(title).unwrap_or_else(|| "CrystalDiskMark".into()),
        profile: "crystaldiskmark".into(),
        notes: vec!["CrystalDiskMark prints the best of its runs".into()],
        ..RunRecord::default()
    };
    if record.tool.starts_with("KDiskMark") {
        record.notes = vec!["KDiskMark gives the best or the mean of its runs, as it was set".into()];
    }
    let mut figures = Figures::default();
    let (mut op, mut part, mut rows_of_part, mut not_run) = (None, 1, 0, 0);
    for (at, line) in text.lines().enumerate() {
        if (title(line).is_some() || line.trim_start().starts_with("* MB/s")) && rows_of_part > 0 {
            (op, rows_of_part) = (None, 0);
            part += 1;
        }
        match line.trim_start_matches(['>', '|', '*', ' ', '\t']).trim_end() {
            "[Read]" => op = Some(Operation::Read),
            "[Write]" => op = Some(Operation::Write),
            mix if mix.starts_with("[Mix]") => op = Some(Operation::Mixed),
            row if is_row(row) => {
                rows_of_part += 1;
                let found = op.or_else(|| direction(row)).and_then(|op| row_figure(row, op, numbers));
                let figure =
                    found.ok_or_else(|| broken(FORMAT, format!("line {} cannot be read: {row}", at + 1)))?;
                if figure.runs.iter().all(|rate| *rate == 0.0) {
                    not_run += 1;
                    continue;
                }
                let name = if part == 1 { figure.name } else { format!("{}#{part}", figure.name) };
                figures.add(MeasurementRecord { name, ..figure }, &format!("{part} {at}"));
            }
            row if part == 1 => note_setting(row, &mut record),
            _ => {}
        }
    }
    if not_run > 0 {
        record.notes.push(format!("cells that are 0 were not run and are left out: {not_run}"));
    }
    if part > 1 {
        record
            .notes
            .push(format!("names of results after the first end in a number; results in the file: {part}"));
    }
    if figures.is_empty() {
        return Err(broken(FORMAT, "none of its cells was run"));
    }
    record.measurements = figures.finish()?;
    Ok(Some(record))
}

/// Program and version of a title: `CrystalDiskMark 8.0.4 x64 (C) …`, `KDiskMark (3.2.0): …`.
fn title(line: &str) -> Option<String> {
    let line = line.trim();
    if let Some(rest) = line.strip_prefix("KDiskMark (") {
        return Some(format!("KDiskMark {}", rest.split(')').next()?));
    }
    let version = line.split_once("CrystalDiskMark ").map_or("", |(_, version)| version);
    let is_own = line.starts_with("CrystalDiskMark ") || line.contains("in the form of CrystalDiskMark ");
    let is_title = is_own && version.starts_with(|letter: char| letter.is_ascii_digit());
    is_title.then(|| line.split('(').next().unwrap_or_default().trim().to_owned())
}

/// The name of a row and its figures; a row of settings has no rate.
fn parts(row: &str) -> Option<(&str, &str)> {
    let (name, figures) = row.rsplit_once(": ")?;
    // People quote results in mails and lists.
    let name = name.trim_start_matches(|letter: char| !letter.is_alphanumeric()).trim_end();
    RATES.iter().any(|(unit, _)| figures.contains(unit)).then_some((name, figures))
}

fn is_row(line: &str) -> bool {
    let is_name =
        |name: &str| ["seq", "rnd", "random"].iter().any(|kind| name.to_lowercase().starts_with(kind));
    parts(line).is_some_and(|(name, _)| is_name(name))
}

/// Texts of the figures of a row.
fn figures_of(row: &str) -> impl Iterator<Item = &str> {
    let figures = parts(row).map_or("", |(_, figures)| figures);
    figures.split(['[', ']', '<', '>']).map(|text| text.trim().split(' ').next().unwrap_or_default())
}

/// Before version 7 the direction is in the name of the row.
fn direction(row: &str) -> Option<Operation> {
    let row = row.to_lowercase();
    match (row.contains("read"), row.contains("write"), row.contains("mix")) {
        (_, _, true) => Some(Operation::Mixed),
        (true, false, _) => Some(Operation::Read),
        (false, true, _) => Some(Operation::Write),
        _ => None,
    }
}

fn row_figure(row: &str, op: Operation, numbers: Numbers) -> Option<MeasurementRecord> {
    let (name, figures) = parts(row)?;
    let (what, load) = name.split_once('(').unwrap_or((name, ""));
    let setting =
        |key: &str| -> Option<u32> { load.split_once(key)?.1.split([',', ')']).next()?.trim().parse().ok() };
    // `(QD=32)` in version 3, `(Q= 32,T= 1)` since; one request of one thread is not printed.
    let has_queue = load.contains("Q=") || load.contains("QD=");
    let queue_depth = if has_queue { setting("Q=").or_else(|| setting("QD="))? } else { 1 };
    let workers = if load.contains("T=") { setting("T=")? } else { 1 };
    let (unit, bytes) = RATES.into_iter().find(|(unit, _)| figures.contains(unit))?;
    let rate = numbers.read(figures.split_once(unit)?.0)?;
    let between = |open: char, unit: &str| numbers.read(figures.split_once(open)?.1.split_once(unit)?.0);
    let is_sequential = what.to_lowercase().starts_with("seq");
    let block_bytes = match block(what) {
        Some(bytes) => bytes,
        None if is_sequential && has_queue => SEQUENTIAL_WITH_QUEUE_BYTES,
        None if is_sequential => SEQUENTIAL_BYTES,
        None => return None,
    };
    let kind = if is_sequential { "SEQ" } else { "RND" };
    let size = match block_bytes {
        bytes if bytes >= 1 << 20 => format!("{}M", bytes >> 20),
        bytes => format!("{}K", bytes >> 10),
    };
    let side = match op {
        Operation::Read => "read",
        Operation::Write => "write",
        _ => "mix",
    };
    let positive = |value: Option<f64>| value.filter(|value| *value > 0.0);
    let mean = positive(between('<', "us"));
    Some(
        MeasurementRecord {
            block_bytes: Some(block_bytes),
            queue_depth: Some(queue_depth),
            workers: Some(workers),
            iops: positive(between('[', "IOPS")),
            latency_us: mean.map(|mean| Latencies { mean: Some(mean), ..Latencies::default() }),
            unit: Unit::MbPerS,
            ..MeasurementRecord::empty(format!("{kind}{size}_Q{queue_depth}T{workers}_{side}"), op)
        }
        .with_runs(vec![rate * bytes / 1e6]),
    )
}

/// Bytes of `1MiB`, `1 MiB`, `4KB` and `512KB`; the KB of version 3 are 1024 bytes too.
fn block(text: &str) -> Option<u64> {
    let unit_at = ["KiB", "MiB", "KB", "MB"].iter().find_map(|unit| text.find(unit))?;
    let shift = if text[unit_at..].starts_with('M') { 20 } else { 10 };
    let digits = text[..unit_at].split_whitespace().next_back()?;
    digits.parse::<u64>().ok().filter(|value| *value > 0 && *value <= 1 << 20).map(|value| value << shift)
}

fn note_setting(row: &str, record: &mut RunRecord) {
    let Some((name, value)) = row.split_once(':') else { return };
    let value = value.trim();
    match name.trim() {
        "Date" => record.date = instant(value),
        name @ ("Test" | "OS" | "Profile" | "Mode" | "Comment") => {
            record.environment.insert(name.to_lowercase(), value.to_owned());
        }
        _ => {}
    }
}
