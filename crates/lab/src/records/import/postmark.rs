//! PostMark's report: seconds, files and data with their rates. Its kilobytes and megabytes are
//! powers of 1024.

use super::{ImportError, broken, number};
use crate::records::record::{MeasurementRecord, Operation, RunRecord, Unit};

const FORMAT: &str = "PostMark's report";

pub(super) fn fits(text: &str) -> bool {
    text.contains("seconds total") && text.contains("seconds of transactions")
}

pub(super) fn read(text: &str) -> Result<RunRecord, ImportError> {
    let mut record =
        RunRecord { tool: "PostMark".into(), profile: "postmark".into(), ..RunRecord::default() };
    if let Some(line) = text.lines().find(|line| line.starts_with("PostMark v")) {
        record.tool =
            format!("PostMark {}", line["PostMark v".len()..].split(':').next().unwrap_or_default().trim());
    }
    let mut phase = "";
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        let unreadable = || broken(FORMAT, format!("line {}: {line}", at + 1));
        if let Some(seconds) = line.strip_suffix("seconds total") {
            let seconds = number(seconds).ok_or_else(unreadable)?;
            record.measurements.push(MeasurementRecord::printed(
                "total_time",
                Operation::Transaction,
                Unit::Seconds,
                seconds,
            ));
            continue;
        }
        let Some((what, rate)) = line.split_once('(') else { continue };
        let Some(rate) = rate.trim_end_matches(')').strip_suffix("per second") else { continue };
        let rate = rate.trim();
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
        record.measurements.push(figure);
    }
    if record.measurements.is_empty() {
        return Err(broken(FORMAT, "it has no line with a rate"));
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "PostMark v1.53 : 8/8/12\nTime:\n\t1845 seconds total\n\t959 seconds of transactions (5 per second)\n\n\
Files:\n\t7506 created (4 per second)\n\t\tCreation alone: 5000 files (6 per second)\n\t\tMixed with transactions: 2506 files (2 per second)\n\
\t2541 read (2 per second)\n\t2459 appended (2 per second)\n\t7506 deleted (4 per second)\n\
\t\tDeletion alone: 5012 files (111 per second)\n\t\tMixed with transactions: 2494 files (2 per second)\n\n\
Data:\n\t13345.22 megabytes read (7.23 megabytes per second)\n\t4114.30 kilobytes written (2.50 kilobytes per second)\n";

    #[test]
    fn a_postmark_report_is_imported() {
        assert!(fits(TEXT));
        let record = read(TEXT).expect("PostMark");
        assert_eq!(record.tool, "PostMark 1.53");
        let named = |name: &str| record.measurements.iter().find(|found| found.name == name).expect(name);
        assert_eq!(named("total_time").runs, [1845.0]);
        assert_eq!(named("transactions").iops, Some(5.0));
        assert_eq!((named("created_mixed").iops, named("deleted_alone").iops), (Some(2.0), Some(111.0)));
        assert_eq!(named("data_read").mb_per_s, Some(7.23 * 1.048_576));
        assert_eq!(named("data_written").mb_per_s, Some(2.5 * 1024.0 / 1e6));
        assert_eq!(record.measurements.len(), 12);
    }
}
