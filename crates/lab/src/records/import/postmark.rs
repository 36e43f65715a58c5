//! PostMark's report: seconds, files and data with their rates. Its kilobytes and megabytes are
//! powers of 1024. Its prompt may stand before any line, and a session has a report for each `run`.

use super::kit::{Figures, Numbers};
use super::{ImportError, broken};
use crate::records::record::{MeasurementRecord, Operation, RunRecord, Unit};

const FORMAT: &str = "PostMark's report";

/// Reads all reports in a text; `None` if there are none.
pub(super) fn read(text: &str) -> Result<Option<RunRecord>, ImportError> {
    if !text.contains("seconds total") || !text.contains("seconds of transactions") {
        return Ok(None);
    }
    let mut record =
        RunRecord { tool: "PostMark".into(), profile: "postmark".into(), ..RunRecord::default() };
    let version = text.lines().find_map(|line| Some(line.split_once("PostMark v")?.1));
    if let Some(version) = version {
        record.tool = format!("PostMark {}", version.split(':').next().unwrap_or_default().trim());
    }
    let rates = text.lines().filter_map(rate_of).map(|(_, rate)| rate.split(' ').next().unwrap_or_default());
    let numbers = Numbers::of(rates, None);
    let number = |text: &str| numbers.read(text);
    let mut figures = Figures::default();
    let mut phase = "";
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        let unreadable = || broken(FORMAT, format!("line {}: {line}", at + 1));
        if let Some(seconds) = line.strip_suffix("seconds total") {
            let seconds = seconds.rsplit('>').next().unwrap_or_default();
            let seconds = number(seconds).ok_or_else(unreadable)?;
            let total =
                MeasurementRecord::printed("total_time", Operation::Transaction, Unit::Seconds, seconds);
            figures.add(total, "");
            continue;
        }
        let Some((what, rate)) = rate_of(line) else { continue };
        let (name, op) = match what {
            _ if what.contains("seconds of transactions") => ("transactions", Operation::Transaction),
            _ if what.contains("created") => {
                phase = "create";
                ("created", Operation::Create)
            }
            _ if what.contains("Creation alone") => ("created_alone", Operation::Create),
            _ if what.contains("deleted") => {
                phase = "delete";
                ("deleted", Operation::Delete)
            }
            _ if what.contains("Deletion alone") => ("deleted_alone", Operation::Delete),
            _ if what.contains("Mixed with") && phase == "create" => ("created_mixed", Operation::Create),
            _ if what.contains("Mixed with") => ("deleted_mixed", Operation::Delete),
            _ if what.contains("bytes read") => ("data_read", Operation::Read),
            _ if what.contains("bytes written") => ("data_written", Operation::Write),
            _ if what.contains("read") => ("files_read", Operation::Read),
            _ if what.contains("appended") => ("files_appended", Operation::Write),
            _ => continue,
        };
        let figure = match rate.split_once(' ') {
            None => {
                MeasurementRecord::printed(name, op, Unit::PerSecond, number(rate).ok_or_else(unreadable)?)
            }
            Some((value, unit)) => {
                let scale = match unit {
                    "bytes" => 1.0,
                    "kilobytes" => 1024.0,
                    "megabytes" => 1_048_576.0,
                    "gigabytes" => 1_073_741_824.0,
                    _ => return Err(unreadable()),
                };
                let value = number(value).ok_or_else(unreadable)?;
                MeasurementRecord::printed(name, op, Unit::MbPerS, value * scale / 1e6)
            }
        };
        figures.add(figure, "");
    }
    if figures.is_empty() {
        return Err(broken(FORMAT, "it has no line with a rate"));
    }
    record.measurements = figures.finish()?;
    Ok(Some(record))
}

/// Counted thing and rate of a line: `349 created (349 per second)`.
fn rate_of(line: &str) -> Option<(&str, &str)> {
    let (what, rate) = line.trim().split_once('(')?;
    Some((what, rate.trim_end_matches(')').strip_suffix("per second")?.trim()))
}
