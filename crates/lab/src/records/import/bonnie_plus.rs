//! bonnie++ 1.9x and 2.x: its line of comma-separated values. Rates are in KiB a second.

use super::bonnie::push_pair;
use super::table::fields;
use super::{ImportError, broken, number};
use crate::records::record::{MeasurementRecord, Operation, RunRecord, Unit};

const FORMAT: &str = "bonnie++ CSV";

/// Field numbers of format 2, as in its manual: rate, then processor share.
const BLOCKS: [(usize, &str, Operation); 6] = [
    (9, "per_char_write", Operation::Write),
    (11, "block_write", Operation::Write),
    (13, "rewrite", Operation::Rewrite),
    (15, "per_char_read", Operation::Read),
    (17, "block_read", Operation::Read),
    (19, "seeks", Operation::Seek),
];
const FILES: [(usize, &str, Operation); 6] = [
    (26, "seq_create", Operation::Create),
    (28, "seq_stat", Operation::Read),
    (30, "seq_delete", Operation::Delete),
    (32, "random_create", Operation::Create),
    (34, "random_stat", Operation::Read),
    (36, "random_delete", Operation::Delete),
];

pub(super) fn fits(text: &str) -> bool {
    line(text).is_some()
}

fn line(text: &str) -> Option<Vec<String>> {
    let row = |line: &str| {
        let row = fields(line.trim());
        let is_version = |text: &String| text.starts_with("1.9") || text.starts_with("2.");
        (row.len() >= 38 && is_version(&row[0])).then_some(row)
    };
    text.lines().rev().find_map(row)
}

pub(super) fn read(text: &str) -> Result<RunRecord, ImportError> {
    let row = line(text).ok_or_else(|| broken(FORMAT, "no line has 38 fields or more"))?;
    // Some versions insert the chunk size as field 6, which shifts all later fields by one.
    let shift = usize::from(row.get(6).is_some_and(|field| !field.is_empty() && number(field).is_none()));
    let mut record = RunRecord {
        tool: format!("bonnie++ {}", row[1]),
        profile: "bonnie++".into(),
        ..RunRecord::default()
    };
    for (name, at) in [("host", 2), ("concurrency", 3), ("file_size", 5)] {
        record.environment.insert(name.into(), row[at].clone());
    }
    // A field of pluses was too fast to be measured.
    let figure = |at: usize| row.get(at).and_then(|field| number(field));
    let first = first_rate(&row) + shift;
    for (at, name, op) in BLOCKS {
        let at = at - 9 + first;
        if let Some(rate) = figure(at) {
            push_pair(&mut record, name, op, rate, figure(at + 1));
        }
    }
    for (at, name, op) in FILES {
        let at = at - 9 + first;
        if let Some(rate) = figure(at) {
            record.measurements.push(MeasurementRecord::printed(name, op, Unit::PerSecond, rate));
        }
    }
    if record.measurements.is_empty() {
        return Err(broken(FORMAT, "no field contains a figure"));
    }
    Ok(record)
}

/// Index of the per-character write rate: after `seed, file size, chunk size` and, from 1.98 on,
/// `seeks, seek processes`.
fn first_rate(row: &[String]) -> usize {
    if number(&row[1]).is_some_and(|version| version >= 1.98) { 9 } else { 7 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_are_read() {
        let new = "1.98,2.00,lab,1,1700000000,4G,,8192,5,501,98,210000,30,90000,20,1200,99,400000,40,900.5,10,16,,,,,\
                   12000,50,+++++,+++,20000,60,11000,50,+++++,+++,19000,60,18ms,20us,1s,2ms,3us,4ms,5us,6us,7us,8us,9us,10us";
        assert!(fits(new));
        let record = read(new).expect("bonnie++");
        let named = |name: &str| record.measurements.iter().find(|found| found.name == name);
        assert_eq!(named("block_write").expect("it").mb_per_s, Some(210_000.0 * 1024.0 / 1e6));
        assert_eq!(named("seeks").expect("it").iops, Some(900.5));
        assert_eq!(named("seq_create").expect("it").iops, Some(12000.0));
        assert!(named("seq_stat").is_none(), "too fast to be measured");
        let old = "1.97,1.97,lab,1,1700000000,4G,,501,98,210000,30,90000,20,1200,99,400000,40,900.5,10,16,,,,,\
                   12000,50,+++++,+++,20000,60,11000,50,+++++,+++,19000,60,18ms,20us,1s,2ms,3us,4ms,5us,6us,7us,8us,9us,10us";
        let record = read(old).expect("bonnie++");
        let named = |name: &str| record.measurements.iter().find(|found| found.name == name);
        assert_eq!(named("block_write").expect("it").mb_per_s, Some(210_000.0 * 1024.0 / 1e6));
        assert_eq!(named("random_delete").expect("it").iops, Some(19000.0));
    }
}
