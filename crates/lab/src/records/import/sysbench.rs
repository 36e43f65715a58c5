//! sysbench's `fileio` report, of versions 0.4 to 1.1.
//!
//! Its latencies are those of all events, reads, writes and flushes together: a figure of their own
//! unless there was one kind of event. Expects reports of other tests of sysbench, which are
//! refused, and several reports in one file.

use super::kit::{Figures, Numbers};
use super::{ImportError, broken};
use crate::records::record::{Latencies, MeasurementRecord, Operation, RunRecord, Unit};

const FORMAT: &str = "sysbench's report";
const MIB: f64 = 1_048_576.0;

/// One report.
#[derive(Default)]
struct Report {
    threads: Option<u32>,
    block_bytes: Option<u64>,
    mode: String,
    /// Requests a second and bytes a second: of reads, then of writes.
    iops: [Option<f64>; 2],
    bytes_per_s: [Option<f64>; 2],
    flushes_per_s: Option<f64>,
    latency: Latencies,
    p95_us: Option<f64>,
    /// Part of the report that is being read.
    section: Section,
    /// Figures of version 0.4: counts of reads, writes and flushes, and the time.
    counts: [Option<f64>; 3],
    seconds: Option<f64>,
    is_ended: bool,
}

#[derive(Default, PartialEq)]
enum Section {
    #[default]
    Settings,
    Operations,
    Throughput,
    Latency,
}

/// Reads all reports in a text; `None` if there are none.
pub(super) fn read(text: &str) -> Result<Option<RunRecord>, ImportError> {
    let title = |line: &&str| {
        let version = line.trim().strip_prefix("sysbench ");
        version.is_some_and(|version| version.starts_with(|letter: char| letter.is_ascii_digit()))
    };
    let is_file_test = text.contains("File operations:")
        || text.contains("Operations performed:")
        || (text.contains("Throughput:") && text.contains("IOPS=") && text.contains("General statistics:"));
    if !is_file_test {
        let is_other = text.lines().any(|line| title(&line)) && text.contains("Number of threads:");
        return match is_other {
            true => Err(broken(FORMAT, "it has no results of `sysbench fileio … run`")),
            false => Ok(None),
        };
    }
    let mut reports = vec![Report::default()];
    for line in text.lines() {
        let starts_next = title(&line) || line.starts_with("Running the test with following options");
        if starts_next && reports.last().is_some_and(|report| report.is_ended) {
            reports.push(Report::default());
        }
        reports.last_mut().expect("it has one").line(line.trim());
    }
    let mut record =
        RunRecord { tool: "sysbench".into(), profile: "sysbench".into(), ..RunRecord::default() };
    if let Some(version) = text.lines().find(title).and_then(|line| line.split_whitespace().nth(1)) {
        record.tool = format!("sysbench {}", version.trim_end_matches(':'));
    }
    let mut figures = Figures::default();
    reports.into_iter().for_each(|report| report.add_to(&mut figures));
    if figures.is_empty() {
        return Err(broken(FORMAT, "it has no rate above 0: is the report complete?"));
    }
    record.measurements = figures.finish()?;
    Ok(Some(record))
}

impl Report {
    fn line(&mut self, line: &str) {
        let number = |text: &str| Numbers::default().read(text.trim());
        let leading = |text: &str| {
            let text = text.trim();
            let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
            number(&text[..end])
        };
        match line {
            "File operations:" => self.section = Section::Operations,
            "Throughput:" => self.section = Section::Throughput,
            _ if line.starts_with("Latency (ms)") || line.eq_ignore_ascii_case("per-request statistics:") => {
                self.section = Section::Latency;
            }
            _ if line.starts_with("Threads fairness") => self.is_ended = true,
            _ if line.starts_with("Operations performed:") => self.old_counts(line),
            _ if line.starts_with("Block size ") => self.block_bytes = size(&line["Block size ".len()..]),
            _ if line.starts_with("Doing ") && line.ends_with(" test") => {
                self.mode = line["Doing ".len()..line.len() - " test".len()].to_owned();
            }
            _ if line.starts_with("Read ") && line.contains("Written ") => self.old_rates(line),
            _ => {
                let Some((name, value)) = line.split_once(':') else { return };
                match (&self.section, name.trim()) {
                    (_, "Number of threads") => self.threads = leading(value).map(|count| count as u32),
                    (_, "total time") => self.seconds = number(value.trim().trim_end_matches('s')),
                    (Section::Operations, "reads/s") => self.iops[0] = number(value),
                    (Section::Operations, "writes/s") => self.iops[1] = number(value),
                    (Section::Operations, "fsyncs/s") => self.flushes_per_s = number(value),
                    (Section::Throughput, "read, MiB/s") => {
                        self.bytes_per_s[0] = number(value).map(|mib| mib * MIB)
                    }
                    (Section::Throughput, "written, MiB/s") => {
                        self.bytes_per_s[1] = number(value).map(|mib| mib * MIB);
                    }
                    // Version 1.1: `read:  IOPS=4262.53 66.60 MiB/s (69.84 MB/s)`.
                    (Section::Throughput, side @ ("read" | "write" | "fsync")) => {
                        let iops = value.split_once("IOPS=").and_then(|(_, text)| leading(text));
                        let before = value.split_once("MiB/s").map_or("", |(text, _)| text);
                        let rate = before.split_whitespace().next_back().and_then(number);
                        match side {
                            "read" => (self.iops[0], self.bytes_per_s[0]) = (iops, rate.map(|mib| mib * MIB)),
                            "write" => {
                                (self.iops[1], self.bytes_per_s[1]) = (iops, rate.map(|mib| mib * MIB))
                            }
                            _ => self.flushes_per_s = iops,
                        }
                    }
                    (Section::Latency, "avg") => self.latency.mean = leading(value).map(|ms| ms * 1e3),
                    (Section::Latency, "max") => {
                        self.latency.max = leading(value).map(|ms| ms * 1e3);
                        self.is_ended = true;
                    }
                    (Section::Latency, "50th percentile") => {
                        self.latency.p50 = leading(value).map(|ms| ms * 1e3)
                    }
                    (Section::Latency, "99th percentile") => {
                        self.latency.p99 = leading(value).map(|ms| ms * 1e3)
                    }
                    (Section::Latency, "95th percentile") => self.p95_us = leading(value).map(|ms| ms * 1e3),
                    _ => {}
                }
            }
        }
    }

    /// `Operations performed:  6000 Read, 4000 Write, 12800 Other = 22800 Total`
    fn old_counts(&mut self, line: &str) {
        for part in line.split([':', ',', '=']) {
            let Some((count, kind)) = part.trim().split_once(' ') else { continue };
            let at = match kind.trim().to_lowercase().as_str() {
                "read" | "reads" => 0,
                "write" | "writes" => 1,
                "other" => 2,
                _ => continue,
            };
            self.counts[at] = Numbers::default().read(count);
        }
    }

    /// `Read 93.75Mb  Written 62.5Mb  Total transferred 156.25Mb  (15.6Mb/sec)`
    fn old_rates(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.windows(2) {
            let side = match pair[0] {
                "Read" => 0,
                "Written" => 1,
                _ => continue,
            };
            // Bytes until the time is known, at the end of the report.
            self.bytes_per_s[side] = size_or_fraction(pair[1]);
        }
    }

    fn add_to(self, figures: &mut Figures) {
        let (mut iops, mut rates, mut flushes) = (self.iops, self.bytes_per_s, self.flushes_per_s);
        if let Some(seconds) = self.seconds.filter(|seconds| *seconds > 0.0 && self.counts != [None; 3]) {
            iops = [0, 1].map(|at| self.counts[at].map(|count| count / seconds));
            rates = rates.map(|bytes| bytes.map(|bytes| bytes / seconds));
            flushes = self.counts[2].map(|count| count / seconds);
        }
        let positive = |value: Option<f64>| value.filter(|value| *value > 0.0);
        let flushes = positive(flushes);
        let kinds = iops.into_iter().chain([flushes]).filter(|rate| positive(*rate).is_some()).count();
        let latency = (self.latency != Latencies::default() && positive(self.latency.mean).is_some())
            .then_some(self.latency);
        let mode = if self.mode.is_empty() { "fileio" } else { self.mode.as_str() };
        let empty = |name: &str, op| MeasurementRecord {
            block_bytes: self.block_bytes,
            workers: self.threads,
            queue_depth: Some(1),
            ..MeasurementRecord::empty(format!("{mode}: {name}"), op)
        };
        for (at, name, op) in [(0, "read", Operation::Read), (1, "write", Operation::Write)] {
            let Some(rate) = positive(rates[at]) else { continue };
            let figure = MeasurementRecord {
                iops: positive(iops[at]),
                latency_us: latency.filter(|_| kinds == 1),
                ..empty(name, op)
            };
            figures.add(figure.with_runs(vec![rate / 1e6]), "");
        }
        if let Some(rate) = flushes {
            let figure = MeasurementRecord {
                unit: Unit::PerSecond,
                block_bytes: None,
                ..empty("fsync", Operation::Mixed)
            };
            figures.add(figure.with_runs(vec![rate]), "");
        }
        if let (Some(latency), true) = (latency, kinds > 1) {
            let figure = MeasurementRecord {
                unit: Unit::LatencyUs,
                block_bytes: None,
                latency_us: Some(latency),
                ..empty("latency of all events", Operation::Mixed)
            };
            figures.add(figure.with_runs(latency.mean.into_iter().collect()), "");
        }
        if let Some(p95) = self.p95_us.filter(|p95| *p95 > 0.0) {
            let figure = MeasurementRecord {
                unit: Unit::LatencyUs,
                block_bytes: None,
                ..empty("95th percentile of all events", Operation::Mixed)
            };
            figures.add(figure.with_runs(vec![p95]), "");
        }
    }
}

/// Bytes of `16KiB`, and of `16Kb` of version 0.4.
fn size(text: &str) -> Option<u64> {
    size_or_fraction(text).filter(|bytes| bytes.fract() == 0.0 && *bytes < 1e15).map(|bytes| bytes as u64)
}

fn size_or_fraction(text: &str) -> Option<f64> {
    let text = text.trim();
    let end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let power = match text[end..].chars().next().map_or('b', |unit| unit.to_ascii_lowercase()) {
        'b' => 0,
        'k' => 1,
        'm' => 2,
        'g' => 3,
        't' => 4,
        _ => return None,
    };
    Numbers::default().read(&text[..end]).map(|value| value * 1024f64.powi(power))
}
