//! IOMeter's results file: sections that begin with an apostrophe, and one table of figures per
//! test.
//!
//! Versions up to 2008 call 2^20 bytes a MB; 1.1 names its columns `MBps (Binary)` and
//! `MBps (Decimal)`.

use super::table::{Headings, fields};
use super::{ImportError, broken, number};
use crate::records::record::{Latencies, MeasurementRecord, Operation, RunRecord, Unit};

const FORMAT: &str = "IOMeter CSV";

pub(super) fn fits(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("'Target Type,"))
}

/// An access specification's block length and read share, where it has one line.
struct Access {
    name: String,
    block_bytes: Option<u64>,
    read_percent: Option<f64>,
}

pub(super) fn read(text: &str) -> Result<RunRecord, ImportError> {
    let mut record = RunRecord { tool: "IOMeter".into(), profile: "iometer".into(), ..RunRecord::default() };
    let (mut accesses, mut headings) = (Vec::new(), None);
    let mut lines = text.lines().enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        let next = lines.peek().map(|(_, next)| *next).unwrap_or_default();
        match line {
            _ if line.starts_with("'Version") => record.tool = format!("IOMeter {}", next.trim()),
            _ if line.starts_with("'Time Stamp") => record.date = next.trim().to_owned(),
            _ if line.starts_with("'Access specification name") => accesses.push(Access {
                name: fields(next).first().cloned().unwrap_or_default(),
                block_bytes: None,
                read_percent: None,
            }),
            _ if line.starts_with("'size,") => set_access(accesses.last_mut(), next),
            _ if line.starts_with("'Target Type,") => headings = Some(Headings::of(line)),
            _ if line.starts_with('\'') => {}
            _ if line.starts_with("ALL,") => {
                let headings = headings
                    .as_ref()
                    .ok_or_else(|| broken(FORMAT, format!("line {}: figures without headings", at + 1)))?;
                row_figures(headings, &fields(line), &accesses, &mut record)
                    .ok_or_else(|| broken(FORMAT, format!("line {}: no figures in it", at + 1)))?;
            }
            _ => {}
        }
    }
    if record.measurements.is_empty() {
        return Err(broken(FORMAT, "it has no line `ALL` with figures"));
    }
    Ok(record)
}

fn set_access(access: Option<&mut Access>, line: &str) {
    let (Some(access), row) = (access, fields(line)) else { return };
    let share = row.get(1).and_then(|text| number(text));
    // Lists of several lengths have no one length.
    if share.is_some_and(|share| share >= 100.0) {
        access.block_bytes = row.first().and_then(|text| number(text)).map(|bytes| bytes as u64);
        access.read_percent = row.get(2).and_then(|text| number(text));
    }
}

fn row_figures(
    headings: &Headings,
    row: &[String],
    accesses: &[Access],
    record: &mut RunRecord,
) -> Option<()> {
    let figure = |name: &str| headings.get(row, name).and_then(number);
    let mb_per_s = |side: &str| {
        let decimal = figure(&format!("{side}mbps (decimal)"));
        let binary = || figure(&format!("{side}mbps")).or_else(|| figure(&format!("{side}mbps (binary)")));
        let binary = || binary().or_else(|| figure(&format!("{side}mibps (binary)")));
        decimal.or_else(|| binary().map(|mib| mib * 1.048_576))
    };
    let iops = figure("iops")?;
    let name = headings.get(row, "access specification name").unwrap_or("access");
    let access = accesses.iter().find(|access| access.name == name);
    let op = match (figure("read iops"), access.and_then(|access| access.read_percent)) {
        (Some(0.0), _) | (None, Some(0.0)) => Operation::Write,
        (Some(reads), _) if reads >= iops * 0.999_999 => Operation::Read,
        (None, Some(100.0)) => Operation::Read,
        _ => Operation::Mixed,
    };
    let ms = |name: &str| figure(name).map(|ms| ms * 1e3);
    let workers = figure("# workers").map(|count| count as u32);
    let outstanding = figure("queue depth").or_else(|| figure("# outstanding i/os"));
    let same = record.measurements.iter().filter(|found| found.name.starts_with(name)).count();
    let name = if same == 0 { name.to_owned() } else { format!("{name} ({})", same + 1) };
    let found = MeasurementRecord {
        block_bytes: access.and_then(|access| access.block_bytes),
        queue_depth: outstanding.map(|depth| depth as u32),
        workers,
        iops: Some(iops),
        latency_us: ms("average response time").map(|mean| Latencies {
            mean: Some(mean),
            max: ms("maximum response time"),
            ..Latencies::default()
        }),
        unit: Unit::MbPerS,
        ..MeasurementRecord::empty(name, op)
    };
    record.measurements.push(found.with_runs(vec![mb_per_s("")?]));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "'Test Type,Test Description\n0,\n'Version\n2008.06.18-RC2\n'Time Stamp\n2009-02-03 04:05:06\n\
'Access specifications\n'Access specification name,default assignment\n4K random read,1\n\
'size,% of size,% reads,% random,delay,burst,align,reply\n4096,100,100,100,0,1,0,0\n'End access specifications\n\
'Results\n'Target Type,Target Name,Access Specification Name,# Managers,# Workers,# Disks,IOps,Read IOps,Write IOps,\
MBps,Read MBps,Write MBps,Average Response Time,Maximum Response Time,% CPU Utilization\n\
ALL,All,4K random read,1,1,1,35511.2,35511.2,0.000000,138.715625,138.715625,0,0.9,12.5,20\n\
MANAGER,HOST,,,1,1,35511.2,35511.2,0,138.7,138.7,0,0.9,12.5,20\n";

    #[test]
    fn the_all_line_is_read_with_binary_megabytes() {
        assert!(fits(TEXT));
        let record = read(TEXT).expect("IOMeter");
        assert_eq!(
            (record.tool.as_str(), record.date.as_str()),
            ("IOMeter 2008.06.18-RC2", "2009-02-03 04:05:06")
        );
        let [only] = record.measurements.as_slice() else { panic!("{record:?}") };
        assert_eq!((only.op, only.block_bytes, only.workers), (Operation::Read, Some(4096), Some(1)));
        assert!((only.mb_per_s.expect("a figure") - 145.4539).abs() < 1e-3, "{only:?}");
        assert_eq!(only.latency_us.expect("a latency").mean, Some(900.0));
    }
}
