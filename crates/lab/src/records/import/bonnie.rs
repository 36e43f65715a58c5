//! bonnie 1.x: its headings and one line, `machine  MB  K/sec %CPU …`, where K is 2^10 bytes.

use super::{ImportError, broken, number};
use crate::records::record::{MeasurementRecord, Operation, RunRecord, Unit};

const FORMAT: &str = "bonnie's line";

/// The six tests, in the order of the line, as the laboratory names them.
pub(crate) const TESTS: [(&str, Operation); 6] = [
    ("per_char_write", Operation::Write),
    ("block_write", Operation::Write),
    ("rewrite", Operation::Rewrite),
    ("per_char_read", Operation::Read),
    ("block_read", Operation::Read),
    ("seeks", Operation::Seek),
];

pub(super) fn fits(text: &str) -> bool {
    text.contains("-Per Char-") && text.contains("%CPU")
}

pub(super) fn read(text: &str) -> Result<RunRecord, ImportError> {
    let heading = text.lines().position(|line| line.trim_start().starts_with("Machine"));
    let heading = heading.ok_or_else(|| broken(FORMAT, "the headings have no line `Machine`"))?;
    let mut record =
        RunRecord { tool: "bonnie 1.x".into(), profile: "bonnie".into(), ..RunRecord::default() };
    let missing = || broken(FORMAT, "there is no line of twelve figures under the headings");
    let mut lines = text.lines().enumerate().skip(heading + 1);
    let (at, line) = lines.find(|(_, line)| !line.trim().is_empty()).ok_or_else(missing)?;
    let words: Vec<&str> = line.split_whitespace().collect();
    // The machine's name may be missing or glued to the size (`1*2030`).
    let first = words.len().checked_sub(12).ok_or_else(missing)?;
    let figures: Option<Vec<f64>> = words[first..].iter().map(|word| number(word)).collect();
    let figures = figures.ok_or_else(|| broken(FORMAT, format!("line {}: {line}", at + 1)))?;
    record.environment.insert("bonnie_machine_and_mb".into(), words[..first].join(" "));
    for ((name, op), pair) in TESTS.into_iter().zip(figures.chunks(2)) {
        push_pair(&mut record, name, op, pair[0], Some(pair[1]));
    }
    Ok(record)
}

/// A rate in KiB a second (seeks: a second) and the processor's share beside it.
pub(super) fn push_pair(
    record: &mut RunRecord,
    name: &str,
    op: Operation,
    rate: f64,
    cpu_percent: Option<f64>,
) {
    let figure = match op {
        Operation::Seek => MeasurementRecord::printed(name, op, Unit::PerSecond, rate),
        _ => MeasurementRecord::printed(name, op, Unit::MbPerS, rate * 1024.0 / 1e6),
    };
    record.measurements.push(figure);
    if let Some(percent) = cpu_percent {
        let name = format!("{name}_cpu");
        record.measurements.push(MeasurementRecord::printed(name, op, Unit::CpuPercent, percent));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bonnie_line_is_imported() {
        let text = "\
              -------Sequential Output-------- ---Sequential Input-- --Random--
              -Per Char- --Block--- -Rewrite-- -Per Char- --Block--- --Seeks---
Machine    MB K/sec %CPU K/sec %CPU K/sec %CPU K/sec %CPU K/sec %CPU  /sec %CPU
       1*2030 31242 98.1 59811 24.0 25437 12.9 31842 93.1 93512 17.2 391.4  2.0
";
        assert!(fits(text));
        let record = read(text).expect("bonnie");
        assert_eq!(record.measurements.len(), 12);
        let block_write = &record.measurements[2];
        assert_eq!(
            (block_write.name.as_str(), block_write.mb_per_s),
            ("block_write", Some(59811.0 * 1024.0 / 1e6))
        );
        let seeks = &record.measurements[10];
        assert_eq!((seeks.iops, seeks.op), (Some(391.4), Operation::Seek));
        assert_eq!(record.measurements[1].runs, [98.1]);
        assert!(read("Machine MB -Per Char- %CPU\n 1 2 3\n").is_err());
    }
}
