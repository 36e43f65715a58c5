//! Measured traces: one request a line, with its response time and the pause behind it.

use super::ReplayError;

const NEEDED: [&str; 5] = ["op", "lbn", "sectors", "response_us", "gap_us"];
/// Known, and not used: most drives were recorded with the same word in every row.
const IGNORED: [&str; 1] = ["cache_hit_recorded"];

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Rather than a read.
    pub write: bool,
    /// First sector.
    pub lbn: u64,
    /// At least one.
    pub sectors: u32,
    /// As measured.
    pub response_ns: u64,
    /// From its completion to the next request.
    pub gap_ns: u64,
}

/// A trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Its path.
    pub file: String,
    /// In order; at least one.
    pub rows: Vec<Row>,
    /// The column of `lbn`, for messages.
    lbn_column: usize,
}

impl Trace {
    /// Reads CSV with a header; `file` is for messages.
    pub fn parse(file: &str, text: &str) -> Result<Self, ReplayError> {
        let fail =
            |line: usize, column: usize, why: String| ReplayError { file: file.into(), line, column, why };
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
        let (_, header) = lines.next().ok_or_else(|| fail(1, 0, "empty, instead of a header".into()))?;
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        for (at, name) in names.iter().enumerate() {
            if !NEEDED.contains(name) && !IGNORED.contains(name) {
                return Err(fail(1, at + 1, format!("there is no column `{name}` in traces")));
            }
            if names[..at].contains(name) {
                return Err(fail(1, at + 1, format!("column `{name}` is there twice")));
            }
        }
        let mut columns = [0; NEEDED.len()];
        for (name, column) in NEEDED.iter().zip(&mut columns) {
            let found = names.iter().position(|other| other == name);
            *column = found.ok_or_else(|| fail(1, 0, format!("column `{name}` is missing")))?;
        }
        let mut rows = Vec::new();
        for (line, text) in lines.filter(|(_, text)| !text.trim().is_empty()) {
            let cells: Vec<&str> = text.split(',').map(str::trim).collect();
            if cells.len() != names.len() {
                let why = format!("{} cells instead of {}", cells.len(), names.len());
                return Err(fail(line, 0, why));
            }
            let cell = |index: usize| (columns[index] + 1, cells[columns[index]]);
            let number = |index: usize| -> Result<f64, ReplayError> {
                let (column, cell) = cell(index);
                let value = cell.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
                value.ok_or_else(|| {
                    fail(line, column, format!("{} `{cell}` is no number from 0", NEEDED[index]))
                })
            };
            let whole = |index: usize, most: u64| -> Result<u64, ReplayError> {
                let (column, cell) = cell(index);
                let value = cell.parse::<u64>().ok().filter(|value| *value <= most);
                let why = || format!("{} `{cell}` is no whole number up to {most}", NEEDED[index]);
                value.ok_or_else(|| fail(line, column, why()))
            };
            let write = match cell(0).1 {
                "R" => false,
                "W" => true,
                other => return Err(fail(line, cell(0).0, format!("op `{other}` is neither R nor W"))),
            };
            let sectors = whole(2, 1 << 20)? as u32;
            if sectors == 0 {
                return Err(fail(line, cell(2).0, "a request of no sectors".into()));
            }
            let ns = |us: f64| (us * 1000.0).round() as u64;
            let (response_ns, gap_ns) = (ns(number(3)?.min(1e12)), ns(number(4)?.min(1e12)));
            rows.push(Row { write, lbn: whole(1, 1 << 48)?, sectors, response_ns, gap_ns });
        }
        if rows.is_empty() {
            return Err(fail(1, 0, "no requests behind the header".into()));
        }
        Ok(Self { file: file.into(), rows, lbn_column: columns[1] + 1 })
    }

    /// Refuses requests beyond the end of the drive.
    pub(super) fn check_capacity(&self, capacity_sectors: u64) -> Result<(), ReplayError> {
        let beyond = |row: &Row| row.lbn + u64::from(row.sectors) > capacity_sectors;
        match self.rows.iter().position(beyond) {
            None => Ok(()),
            Some(at) => Err(ReplayError {
                file: self.file.clone(),
                line: at + 2,
                column: self.lbn_column,
                why: format!("the drive ends at sector {capacity_sectors}"),
            }),
        }
    }
}
