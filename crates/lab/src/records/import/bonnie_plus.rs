//! bonnie++: its lines of separated values, of formats 1.9x and of 1.03 (without a version), and
//! its table for people. Rates are in KiB a second.
//!
//! The first field is the version of the format and determines the columns; the second is the
//! program's version, which need not be a number (`2.00a`). Expects fields of pluses and empty
//! fields, which were not measured, and lines that a spreadsheet saved with semicolons.

use super::bonnie::{Label, add_pair};
use super::kit::{Figures, Numbers};
use super::table::{fields_by, separator_of};
use super::{ImportError, broken};
use crate::records::record::{Latencies, MeasurementRecord, Operation, RunRecord, Unit};

const FORMAT: &str = "bonnie++ CSV";
const TABLE: &str = "bonnie++'s table";

/// Tests on one file, each with a rate and a share of a processor.
const BLOCKS: [(&str, Operation); 6] = [
    ("per_char_write", Operation::Write),
    ("block_write", Operation::Write),
    ("rewrite", Operation::Rewrite),
    ("per_char_read", Operation::Read),
    ("block_read", Operation::Read),
    ("seeks", Operation::Seek),
];
/// Tests on many files.
const FILES: [(&str, Operation); 6] = [
    ("seq_create", Operation::Create),
    ("seq_stat", Operation::Read),
    ("seq_delete", Operation::Delete),
    ("random_create", Operation::Create),
    ("random_stat", Operation::Read),
    ("random_delete", Operation::Delete),
];

/// Columns of a format.
#[derive(Clone, Copy)]
struct Columns {
    machine: usize,
    concurrency: Option<usize>,
    size: usize,
    blocks: usize,
    files: usize,
    latencies: Option<usize>,
    fields: usize,
}

/// Machine and size first, a count of files between the tests.
const FORMAT_1_03: Columns =
    Columns { machine: 0, concurrency: None, size: 1, blocks: 2, files: 15, latencies: None, fields: 27 };
/// After the file's size its chunk size.
const FORMAT_1_96: Columns = Columns {
    machine: 2,
    concurrency: Some(3),
    size: 5,
    blocks: 7,
    files: 24,
    latencies: Some(36),
    fields: 36,
};
/// After the chunk size the number of seeks and of processes that seek.
const FORMAT_1_98: Columns = Columns { blocks: 9, files: 26, latencies: Some(38), fields: 38, ..FORMAT_1_96 };

struct Line {
    columns: Columns,
    version: String,
    fields: Vec<String>,
}

/// Reads all lines of bonnie++ in a text; `None` if there are none.
pub(super) fn read(text: &str) -> Result<Option<RunRecord>, ImportError> {
    let lines: Vec<Line> = text.lines().filter_map(line).collect();
    if lines.is_empty() {
        return table(text);
    }
    let numbers = Numbers::of(
        lines.iter().flat_map(|line| line.fields[line.columns.blocks..].iter().map(String::as_str)),
        None,
    );
    let mut record = RunRecord {
        tool: format!("bonnie++ {}", lines[0].version).trim_end().to_owned(),
        profile: "bonnie++".into(),
        ..RunRecord::default()
    };
    let first = &lines[0];
    for (name, at) in [
        ("host", Some(first.columns.machine)),
        ("concurrency", first.columns.concurrency),
        ("file_size", Some(first.columns.size)),
    ] {
        if let Some(at) = at {
            record.environment.insert(name.into(), first.fields[at].clone());
        }
    }
    let names =
        |line: &Line| (line.fields[line.columns.machine].clone(), line.fields[line.columns.size].clone());
    let all: Vec<(String, String)> = lines.iter().map(names).collect();
    let label = Label::of(all.iter().map(|(machine, size)| (machine.as_str(), size.as_str())));
    let mut figures = Figures::default();
    for (line, (machine, size)) in lines.iter().zip(&all) {
        add_line(line, &label.prefix(machine, size), numbers, &mut figures)?;
    }
    if figures.is_empty() {
        return Err(broken(FORMAT, "all tests were too fast to be measured"));
    }
    record.measurements = figures.finish()?;
    Ok(Some(record))
}

/// A line of values, with the columns of its format.
fn line(text: &str) -> Option<Line> {
    let separator = separator_of(text);
    // A terse line of fio has as many fields, some of them in percent.
    if text.matches(separator).count() + 1 < FORMAT_1_03.fields || text.contains('%') {
        return None;
    }
    let fields: Vec<String> =
        fields_by(text.trim(), separator).iter().map(|text| text.trim().to_owned()).collect();
    let format = fields[0].as_str();
    let columns = match format_number(format) {
        Some(version) if version >= 1.98 => FORMAT_1_98,
        Some(version) if version >= 1.9 => FORMAT_1_96,
        _ => return old_line(fields),
    };
    let is_size = |text: &str| text.starts_with(|letter: char| letter.is_ascii_digit()) || text.is_empty();
    let fits = fields.len() >= columns.fields && is_size(&fields[columns.size]);
    fits.then(|| Line { columns, version: fields[1].clone(), fields })
}

/// `1.98` and `2`; a spreadsheet may have made `1,98` of it.
fn format_number(text: &str) -> Option<f64> {
    let is_version = text.chars().all(|letter| letter.is_ascii_digit() || matches!(letter, '.' | ','));
    text.replace(',', ".").parse().ok().filter(|version| is_version && (1.9..3.0).contains(version))
}

/// A line of 1.03: known by the shape of all its fields.
fn old_line(fields: Vec<String>) -> Option<Line> {
    let columns = FORMAT_1_03;
    let is_size = |text: &str| {
        let text = text.split(':').next().unwrap_or_default();
        let digits = text.trim_end_matches(['K', 'M', 'G', 'T', 'k']);
        !digits.is_empty() && digits.len() + 1 >= text.len() && digits.chars().all(|one| one.is_ascii_digit())
    };
    let is_figure = |text: &String| {
        text.is_empty() || text.starts_with(|letter: char| letter.is_ascii_digit() || letter == '+')
    };
    let fits = fields.len() == columns.fields
        && !fields[0].is_empty()
        && is_size(&fields[columns.size])
        && fields[columns.blocks..].iter().enumerate().all(|(at, text)| {
            // The count of files may have sizes behind it: `16:1000:0`.
            is_figure(text) && (at + columns.blocks + 1 == columns.files || !text.contains(':'))
        });
    fits.then(|| Line { columns, version: "1.03".to_owned(), fields })
}

fn add_line(line: &Line, prefix: &str, numbers: Numbers, figures: &mut Figures) -> Result<(), ImportError> {
    let field = |at: usize| line.fields.get(at).map_or("", String::as_str);
    let figure = |at: usize| -> Result<Option<f64>, ImportError> {
        match field(at) {
            // Too fast to be measured, or not run.
            text if text.is_empty() || text.starts_with('+') => Ok(None),
            text => numbers.read(text).map(Some).ok_or_else(|| {
                broken(
                    FORMAT,
                    format!("field {} of a line of {} is `{text}`, no figure", at + 1, line.version),
                )
            }),
        }
    };
    let latency = |test: usize| -> Option<Latencies> {
        let max = micro_seconds(field(line.columns.latencies? + test))?;
        Some(Latencies { max: Some(max), ..Latencies::default() })
    };
    for (test, (name, op)) in BLOCKS.into_iter().enumerate() {
        let at = line.columns.blocks + 2 * test;
        if let Some(rate) = figure(at)? {
            add_pair(figures, &format!("{prefix}{name}"), op, rate, figure(at + 1)?, latency(test));
        }
    }
    for (test, (name, op)) in FILES.into_iter().enumerate() {
        if let Some(rate) = figure(line.columns.files + 2 * test)? {
            let mut found = MeasurementRecord::printed(format!("{prefix}{name}"), op, Unit::PerSecond, rate);
            found.latency_us = latency(BLOCKS.len() + test);
            figures.add(found, "");
        }
    }
    Ok(())
}

/// The longest time of a test: `18ms`, `20us`, `1s`.
fn micro_seconds(text: &str) -> Option<f64> {
    let (digits, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
    let scale = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    digits.parse::<f64>().ok().filter(|value| value.is_finite()).map(|value| value * scale)
}

/// The table for people: rates stand under `/sec` and shares under `%CP`, by column, as a test that
/// was not run leaves its columns blank.
fn table(text: &str) -> Result<Option<RunRecord>, ImportError> {
    let mut record =
        RunRecord { profile: "bonnie++".into(), tool: "bonnie++".into(), ..RunRecord::default() };
    let mut lines = text.lines().peekable();
    let (mut figures, mut parts) = (Figures::default(), Vec::new());
    while let Some(line) = lines.next() {
        // bonnie 1.x has `%CPU` in its heading.
        let is_rates = line.contains("/sec %CP") && !line.contains("%CPU");
        let is_heading = is_rates && (line.contains("Machine") || line.contains("Name:Size"));
        if let Some(version) = line.strip_prefix("Version") {
            let version = version.split_whitespace().next().unwrap_or_default();
            if line.contains("Sequential Output") {
                record.tool = format!("bonnie++ {version}");
            }
        }
        if !is_heading {
            continue;
        }
        let slots: Vec<usize> = line.match_indices("/sec %CP").map(|(at, _)| at).collect();
        while let Some(row) = lines.next_if(|row| !row.trim().is_empty() && !row.starts_with("Latency")) {
            if slots.len() != BLOCKS.len() || slots[0] < 8 || !row.is_ascii() || row.len() <= slots[0] {
                break;
            }
            parts.push((row, slots.clone()));
        }
    }
    let names: Vec<(String, String)> = parts.iter().map(|(row, slots)| row_name(row, slots[0])).collect();
    let label = Label::of(names.iter().map(|(machine, size)| (machine.as_str(), size.as_str())));
    for ((row, slots), (machine, size)) in parts.iter().zip(&names) {
        for ((name, op), (rate, share)) in BLOCKS.into_iter().zip(row_figures(row, slots)?) {
            if rate.is_empty() || rate.starts_with('+') {
                continue;
            }
            let read = if op == Operation::Seek { rate.parse().ok() } else { scaled(rate) };
            let rate = read.ok_or_else(|| broken(TABLE, format!("`{rate}` is no rate: {row}")))?;
            let name = format!("{}{name}", label.prefix(machine, size));
            add_pair(&mut figures, &name, op, rate, share.parse().ok(), None);
        }
        record.environment.insert("host".into(), machine.clone());
        record.environment.insert("file_size".into(), size.clone());
    }
    if figures.is_empty() {
        let is_table = text.contains("Sequential Output") && text.contains("%CP ");
        return match is_table {
            true => Err(broken(TABLE, "no test in it has a figure; its last line, of commas, has them all")),
            false => Ok(None),
        };
    }
    record.notes.push(
        "bonnie++'s table has rounded rates; its line of commas has all digits, and tests on files".into(),
    );
    record.measurements = figures.finish()?;
    Ok(Some(record))
}

/// Rates and shares of a row: its last twelve words, or by column if tests were not run.
fn row_figures<'a>(row: &'a str, slots: &[usize]) -> Result<Vec<(&'a str, &'a str)>, ImportError> {
    let words: Vec<&str> = row.split_whitespace().collect();
    if let Some(first) = words.len().checked_sub(2 * BLOCKS.len()).filter(|first| *first > 0) {
        return Ok(words[first..].chunks(2).map(|pair| (pair[0], pair[1])).collect());
    }
    let part = |from: usize, to: usize| row.get(from.min(row.len())..to.min(row.len())).unwrap_or_default();
    let is_blank = |at: usize| part(at, at + 1).trim().is_empty();
    slots
        .iter()
        .map(|start| {
            // A value that is wider than its column moves all that follow.
            let fits = [start - 3, start + 4, start + 8].into_iter().filter(|at| !is_blank(*at)).count();
            let is_moved = !is_blank(start + 4) || !is_blank(start + 8) || (fits > 0 && !is_blank(start - 2));
            match is_moved {
                true => Err(broken(TABLE, format!("its columns are not under their headings: {row}"))),
                false => Ok((part(start - 2, start + 4).trim(), part(start + 4, start + 8).trim())),
            }
        })
        .collect()
}

/// Machine and size in front of the figures.
fn row_name(row: &str, end: usize) -> (String, String) {
    let words: Vec<&str> = row.get(..end.saturating_sub(2)).unwrap_or(row).split_whitespace().collect();
    let (size, machine) =
        words.split_last().map_or(("", String::new()), |(size, all)| (*size, all.join(" ")));
    (machine, size.to_owned())
}

/// KiB a second of `501k`, `350m` and `1g` of version 2, and of plain numbers before.
fn scaled(text: &str) -> Option<f64> {
    let (digits, scale) = match text.chars().last()? {
        'k' => (&text[..text.len() - 1], 1.0),
        'm' => (&text[..text.len() - 1], 1024.0),
        'g' => (&text[..text.len() - 1], 1_048_576.0),
        _ => (text, 1.0),
    };
    digits.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0).map(|value| value * scale)
}
