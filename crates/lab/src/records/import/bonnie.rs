//! bonnie 1.x: its headings and lines `machine  MB  K/sec %CPU …`, where K is 2^10 bytes.

use super::kit::{Figures, Numbers};
use super::{ImportError, broken};
use crate::records::record::{Latencies, MeasurementRecord, Operation, RunRecord, Unit};

const FORMAT: &str = "bonnie's line";
/// Figures of a line: a rate and a share of a processor for each test.
const FIELDS: usize = 12;

/// The six tests, in the order of the line, as the laboratory names them.
pub(crate) const TESTS: [(&str, Operation); 6] = [
    ("per_char_write", Operation::Write),
    ("block_write", Operation::Write),
    ("rewrite", Operation::Rewrite),
    ("per_char_read", Operation::Read),
    ("block_read", Operation::Read),
    ("seeks", Operation::Seek),
];

/// A line: the machine and the size of its file, and the figures.
struct Line<'a> {
    machine: String,
    size: String,
    figures: Vec<&'a str>,
}

/// Reads all lines under bonnie's headings; `None` if there are no headings.
pub(super) fn read(text: &str) -> Result<Option<RunRecord>, ImportError> {
    if !text.contains("-Per Char-") || !text.contains("%CPU") {
        return Ok(None);
    }
    if !text.lines().any(is_heading) {
        return Err(broken(FORMAT, "the headings have no line `Machine`"));
    }
    let mut lines = Vec::new();
    let mut is_table = false;
    for (at, text) in text.lines().enumerate() {
        match line(text) {
            _ if is_heading(text) => is_table = true,
            Some(line) if is_table => lines.push((at, line)),
            _ if text.trim().is_empty() => {}
            // Other text ends the table, unless it has the figures of a broken line.
            _ if is_table && text.split_whitespace().filter(is_figure).count() >= FIELDS / 2 => {
                return Err(broken(FORMAT, format!("line {}: {text}", at + 1)));
            }
            _ => is_table = false,
        }
    }
    if lines.is_empty() {
        return Err(broken(FORMAT, "there is no line of twelve figures under the headings"));
    }
    let numbers = Numbers::of(lines.iter().flat_map(|(_, line)| line.figures.iter().copied()), None);
    let mut record =
        RunRecord { tool: "bonnie 1.x".into(), profile: "bonnie".into(), ..RunRecord::default() };
    let label = Label::of(lines.iter().map(|(_, line)| (line.machine.as_str(), line.size.as_str())));
    let mut figures = Figures::default();
    for (at, line) in &lines {
        let prefix = label.prefix(&line.machine, &line.size);
        for ((name, op), pair) in TESTS.into_iter().zip(line.figures.chunks(2)) {
            let unreadable = || broken(FORMAT, format!("line {}: `{}` is no figure", at + 1, pair[0]));
            if pair[0].starts_with('+') {
                continue;
            }
            let rate = numbers.read(pair[0]).ok_or_else(unreadable)?;
            add_pair(&mut figures, &format!("{prefix}{name}"), op, rate, numbers.read(pair[1]), None);
        }
    }
    let first = &lines[0].1;
    record
        .environment
        .insert("bonnie_machine_and_mb".into(), format!("{} {}", first.machine, first.size).trim().into());
    record.measurements = figures.finish()?;
    Ok(Some(record))
}

fn is_heading(line: &str) -> bool {
    line.trim_start().starts_with("Machine")
}

/// Twelve figures at the end of a line. The machine's name may be missing or glued to the size
/// (`1*2030`).
fn line(text: &str) -> Option<Line<'_>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let first = words.len().checked_sub(FIELDS)?;
    let (names, figures) = words.split_at(first);
    if !figures.iter().all(is_figure) || names.len() > 3 {
        return None;
    }
    let (size, machine) =
        names.split_last().map_or(("", String::new()), |(size, all)| (*size, all.join(" ")));
    Some(Line { machine, size: size.to_owned(), figures: figures.to_vec() })
}

fn is_figure(word: &&str) -> bool {
    word.starts_with(|letter: char| letter.is_ascii_digit() || letter == '+')
}

/// Prefix of names: the machine and the size, as far as the lines of a file differ in them.
pub(super) struct Label {
    has_machine: bool,
    has_size: bool,
}

impl Label {
    pub(super) fn of<'a>(lines: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let (machines, sizes): (Vec<&str>, Vec<&str>) = lines.unzip();
        let differ = |words: &[&str]| words.windows(2).any(|pair| pair[0] != pair[1]);
        Self { has_machine: differ(&machines), has_size: differ(&sizes) }
    }

    pub(super) fn prefix(&self, machine: &str, size: &str) -> String {
        let parts = [(self.has_machine, machine), (self.has_size, size)];
        parts.into_iter().filter(|(is_used, _)| *is_used).map(|(_, word)| format!("{word}: ")).collect()
    }
}

/// A rate in KiB a second (seeks: a second) and the processor's share beside it.
pub(super) fn add_pair(
    figures: &mut Figures,
    name: &str,
    op: Operation,
    rate: f64,
    cpu_percent: Option<f64>,
    latency_us: Option<Latencies>,
) {
    let figure = match op {
        Operation::Seek => MeasurementRecord::printed(name, op, Unit::PerSecond, rate),
        _ => MeasurementRecord::printed(name, op, Unit::MbPerS, rate * 1024.0 / 1e6),
    };
    figures.add(MeasurementRecord { latency_us, ..figure }, "");
    if let Some(percent) = cpu_percent {
        let name = format!("{name}_cpu");
        figures.add(MeasurementRecord::printed(name, op, Unit::CpuPercent, percent), "");
    }
}
