//! CrystalDiskMark's text, versions 5 to 8:
//! `SEQ 1MiB (Q=  8, T= 1):   560.563 MB/s [    534.6 IOPS] < 14932.41 us>`.

use super::{ImportError, broken, number};
use crate::records::record::{Latencies, MeasurementRecord, Operation, RunRecord, Unit};

const FORMAT: &str = "CrystalDiskMark text";

pub(super) fn read(text: &str) -> Result<RunRecord, ImportError> {
    let title = text.lines().find(|line| line.contains("CrystalDiskMark")).unwrap_or_default();
    let version = title.split('(').next().unwrap_or_default().trim();
    let mut record = RunRecord {
        tool: version.to_owned(),
        profile: "crystaldiskmark".into(),
        notes: vec!["CrystalDiskMark prints the best of its runs".into()],
        ..RunRecord::default()
    };
    let mut op = None;
    for (at, line) in text.lines().enumerate() {
        match line.trim() {
            "[Read]" => op = Some(Operation::Read),
            "[Write]" => op = Some(Operation::Write),
            mix if mix.starts_with("[Mix]") => op = Some(Operation::Mixed),
            row if row.contains("MB/s") && row.contains("(Q=") => {
                let op = op.or_else(|| old_direction(row));
                let figure = op.and_then(|op| row_figure(row, op));
                let figure =
                    figure.ok_or_else(|| broken(FORMAT, format!("line {} cannot be read: {row}", at + 1)))?;
                record.measurements.push(figure);
            }
            row => note_setting(row, &mut record),
        }
    }
    if record.measurements.is_empty() {
        return Err(broken(FORMAT, "it has no line with a figure"));
    }
    Ok(record)
}

/// Version 5 and 6 put the direction into the line.
fn old_direction(row: &str) -> Option<Operation> {
    let row = row.to_lowercase();
    if row.contains("read") {
        Some(Operation::Read)
    } else {
        row.contains("write").then_some(Operation::Write)
    }
}

fn row_figure(row: &str, op: Operation) -> Option<MeasurementRecord> {
    let (what, rest) = row.split_once("(Q=")?;
    let (load, figures) = rest.split_once("):").or_else(|| rest.split_once(") :"))?;
    let (depth, threads) = load.split_once(',')?;
    let threads = threads.trim().strip_prefix("T=")?;
    let (queue_depth, workers) = (depth.trim().parse().ok()?, threads.trim().parse().ok()?);
    let mb_per_s = number(figures.split_once("MB/s")?.0)?;
    let between = |open: char, unit: &str| {
        let inside = figures.split_once(open)?.1;
        number(inside.split_once(unit)?.0)
    };
    let block_bytes = block(what)?;
    let kind = if what.to_lowercase().starts_with("seq") { "SEQ" } else { "RND" };
    let size = if block_bytes >= 1 << 20 {
        format!("{}M", block_bytes >> 20)
    } else {
        format!("{}K", block_bytes >> 10)
    };
    let side = match op {
        Operation::Read => "read",
        Operation::Write => "write",
        _ => "mix",
    };
    let mean = between('<', "us");
    Some(
        MeasurementRecord {
            block_bytes: Some(block_bytes),
            queue_depth: Some(queue_depth),
            workers: Some(workers),
            iops: between('[', "IOPS"),
            latency_us: mean.map(|mean| Latencies { mean: Some(mean), ..Latencies::default() }),
            unit: Unit::MbPerS,
            ..MeasurementRecord::empty(format!("{kind}{size}_Q{queue_depth}T{workers}_{side}"), op)
        }
        .with_runs(vec![mb_per_s]),
    )
}

fn block(text: &str) -> Option<u64> {
    let word = text.split_whitespace().find(|word| word.ends_with("iB"))?;
    let (digits, unit) = word.split_at(word.find(|c: char| !c.is_ascii_digit())?);
    let scale = match unit {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(scale)
}

fn note_setting(row: &str, record: &mut RunRecord) {
    let Some((name, value)) = row.split_once(':') else { return };
    let value = value.trim();
    match name.trim() {
        "Date" => record.date = value.replace('/', "-").replacen(' ', "T", 1),
        name @ ("Test" | "OS" | "Profile" | "Mode" | "Comment") => {
            record.environment.insert(name.to_lowercase(), value.to_owned());
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
------------------------------------------------------------------------------
CrystalDiskMark 7.0.0 x64 (C) 2007-2019 hiyohiyo
------------------------------------------------------------------------------
* MB/s = 1,000,000 bytes/s [SATA/600 = 600,000,000 bytes/s]

[Read]
Sequential 1MiB (Q= 16, T= 1):   560.563 MB/s [    534.6 IOPS] < 14932.41 us>
    Random 4KiB (Q=  1, T= 1):     0.412 MB/s [    100.6 IOPS] <  9922.10 us>

[Write]
Sequential 1MiB (Q=  1, T= 1):  1,083.671 MB/s [     79.8 IOPS] < 12497.00 us>

Profile: Default
   Test: 1 GiB (x5) [Interval: 5 sec] <DefaultAffinity=DISABLED>
   Date: 2019/11/03 15:00:00
     OS: Windows 10 Home [10.0 Build 18362] (x64)
";

    #[test]
    fn a_crystaldiskmark_report_is_imported() {
        let record = read(TEXT).expect("CrystalDiskMark");
        assert_eq!(record.tool, "CrystalDiskMark 7.0.0 x64");
        assert_eq!(record.date, "2019-11-03T15:00:00");
        let names: Vec<&str> = record.measurements.iter().map(|found| found.name.as_str()).collect();
        assert_eq!(names, ["SEQ1M_Q16T1_read", "RND4K_Q1T1_read", "SEQ1M_Q1T1_write"]);
        let [first, second, third] = record.measurements.as_slice() else { panic!("three") };
        assert_eq!(
            (first.mb_per_s, first.queue_depth, first.block_bytes),
            (Some(560.563), Some(16), Some(1 << 20))
        );
        assert_eq!(second.latency_us.expect("a latency").mean, Some(9922.10));
        assert_eq!((third.op, third.mb_per_s), (Operation::Write, Some(1083.671)));
    }

    #[test]
    fn a_broken_line_is_named() {
        let error = read(&TEXT.replace("560.563", "much")).expect_err("refused").to_string();
        assert!(error.contains("line 7"), "{error}");
    }
}
