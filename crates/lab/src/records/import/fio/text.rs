//! fio's text for people (`--output-format=normal`), of versions 2 and 3: a block for each job.
//!
//! Its figures are rounded to three or four digits.

use std::collections::BTreeMap;

use super::{DIRECTIONS, Document, Job, Side};
use crate::records::dates::seconds_of;
use crate::records::record::{Latencies, Operation};

/// The results in a text, one document for each output of a process.
pub(super) fn documents(text: &str) -> Vec<Document> {
    let mut reading = Reading::default();
    text.lines().for_each(|line| reading.line(line));
    reading.end_document();
    reading.documents.retain(|document| !document.jobs.is_empty());
    reading.documents
}

#[derive(Default)]
struct Reading {
    documents: Vec<Document>,
    current: Document,
    /// Options that the first lines name, by job.
    options: BTreeMap<String, BTreeMap<String, String>>,
    version: String,
    /// Microseconds of the unit of the percentiles that follow.
    percentile_us: Option<f64>,
}

impl Reading {
    fn line(&mut self, line: &str) {
        let text = line.trim();
        if let Some((name, rest)) = line.split_once(": (groupid=") {
            self.job(name.trim(), rest);
        } else if let Some((name, rest)) = line.split_once(": (g=") {
            let rest = rest.split_once("):").map_or(rest, |(_, rest)| rest);
            self.options.insert(name.trim().to_owned(), options_of(rest));
        } else if text.starts_with("fio-") && !text.contains(' ') {
            self.version = text.to_owned();
        } else if text.starts_with("Run status group") {
            self.percentile_us = None;
        } else if text.starts_with("Disk stats") {
            self.end_document();
        } else if let Some(job) = self.current.jobs.last_mut() {
            match side(text) {
                Some(side) => {
                    job.sides.push(side);
                    self.percentile_us = None;
                }
                None => {
                    if let Some(side) = job.sides.last_mut() {
                        times(text, side, &mut self.percentile_us);
                    }
                }
            }
        }
    }

    /// `db: (groupid=0, jobs=1): err= 0: pid=19372: Fri Nov 27 09:06:16 2026`
    fn job(&mut self, name: &str, rest: &str) {
        let between = |from: &str, to: &str| Some(rest.split_once(from)?.1.split(to).next()?.trim());
        let process = between("pid=", ":").unwrap_or_default().to_owned();
        let known = |job: &Job| job.name == name && job.host == process;
        if self.current.jobs.iter().any(known) {
            self.end_document();
        }
        let error = between("err=", ":").unwrap_or("0");
        if !error.starts_with('0') {
            let reason =
                rest.split_once("err=").and_then(|(_, all)| all.split("): pid=").next()).unwrap_or(error);
            self.current.notes.push(format!("{name}: fio ended with error {}", reason.trim()));
        }
        let date = rest.split_once("pid=").and_then(|(_, rest)| seconds_of(rest.split_once(':')?.1));
        self.current.started_s = self.current.started_s.or(date.map(|seconds| seconds as f64));
        self.current.jobs.push(Job {
            name: name.to_owned(),
            // Distinguishes clones until the document ends.
            host: process,
            group: rest.split(',').next().and_then(|group| group.parse().ok()).unwrap_or(0),
            options: self.options.get(name).cloned().unwrap_or_default(),
            part: 0,
            workers: between("jobs=", ")").and_then(|jobs| jobs.parse().ok()),
            sides: Vec::new(),
        });
    }

    fn end_document(&mut self) {
        let mut document = std::mem::take(&mut self.current);
        document.version.clone_from(&self.version);
        let processes: Vec<String> = document.jobs.iter().map(|job| job.host.clone()).collect();
        document.process = Some(processes.join(","));
        document.jobs.iter_mut().for_each(|job| job.host.clear());
        self.documents.push(document);
    }
}

/// ` rw=randrw, bs=(R) 4096B-4096B, (W) 8192B-8192B, (T) …, ioengine=psync, iodepth=4`; version 2
/// has `bs=4K-4K/8K-8K/4K-4K`.
fn options_of(text: &str) -> BTreeMap<String, String> {
    let mut options = BTreeMap::new();
    for part in text.split(", ").map(str::trim) {
        if let Some((_, sizes)) = part.split_once("bs=") {
            options.insert("bs".to_owned(), sizes.trim_start_matches("(R)").trim().replace('/', ","));
        } else if let Some(sizes) = part.strip_prefix("(W)").or_else(|| part.strip_prefix("(T)")) {
            if let Some(all) = options.get_mut("bs") {
                all.push(',');
                all.push_str(sizes.trim());
            }
        } else if let Some((key, value)) = part.split_once('=') {
            options.insert(key.to_owned(), value.to_owned());
        }
    }
    options
}

/// `read: IOPS=5669, BW=22.1MiB/s (23.2MB/s)(44.3MiB/2001msec)` of version 3, and of version 2
/// `read : io=4055.2MB, bw=69204KB/s, iops=17300, runt= 60003msec`.
fn side(text: &str) -> Option<Side> {
    let (name, rest) = text.split_once(':')?;
    let directions = DIRECTIONS.into_iter().chain([("mixed", Operation::Mixed)]);
    let (name, op) = directions.into_iter().find(|(known, _)| *known == name.trim())?;
    let lower = rest.to_lowercase();
    let after = |key: &str| Some(lower.split_once(key)?.1.trim_start());
    let iops = after("iops=").and_then(|text| scaled(text.split([',', ' ']).next()?));
    let (rate, bytes, seconds) = match after("bw=").zip(after("io=")) {
        Some((rate, bytes)) => {
            let seconds = after("runt=").and_then(|text| text.split_once("msec")?.0.parse::<f64>().ok());
            (amount(rate, 1024.0)?, amount(bytes, 1024.0), seconds.map(|ms| ms / 1e3))
        }
        None => {
            let rate = after("bw=")?;
            let (bytes, seconds) = rate.rsplit_once('(').and_then(|(_, done)| done.split_once('/')).unzip();
            let seconds = seconds.and_then(|text| text.split_once("msec")?.0.parse::<f64>().ok());
            // The rate in powers of 1000 is printed in brackets.
            let decimal = rate.split_once('(').and_then(|(_, text)| amount(text, 1000.0));
            let bytes = bytes.and_then(|bytes| amount(bytes, 1000.0));
            (decimal.or_else(|| amount(rate, 1000.0))?, bytes, seconds.map(|ms| ms / 1e3))
        }
    };
    (rate > 0.0).then_some(Side {
        name,
        op,
        bytes,
        requests: None,
        runtime_s: seconds,
        bytes_per_s: rate,
        iops: iops.filter(|iops| *iops > 0.0),
        latency: None,
        samples: 1.0,
    })
}

/// `     lat (nsec): min=1072, max=9294.0k, avg=132520.15, stdev=427453.26`, and the percentiles.
fn times(text: &str, side: &mut Side, percentile_us: &mut Option<f64>) {
    let unit_us = |text: &str| match text {
        _ if text.contains("(nsec)") => Some(1e-3),
        _ if text.contains("(usec)") => Some(1.0),
        _ if text.contains("(msec)") => Some(1e3),
        _ => None,
    };
    if text.contains("percentiles (") {
        *percentile_us = unit_us(text);
    } else if let Some(percentiles) = text.strip_prefix('|') {
        let (Some(scale), Some(latency)) = (*percentile_us, &mut side.latency) else { return };
        for part in percentiles.split(']') {
            let Some((name, time)) = part.split_once("th=[") else { continue };
            let Some(time) = scaled(time).map(|time| time * scale).filter(|time| *time > 0.0) else {
                continue;
            };
            match name.trim_matches([',', ' ']) {
                "50.00" => latency.p50 = Some(time),
                "99.00" => latency.p99 = Some(time),
                "99.90" => latency.p999 = Some(time),
                _ => {}
            }
        }
    } else if text.starts_with("lat (") || text.starts_with("clat (") {
        let after = |key: &str| scaled(text.split_once(key)?.1.split(',').next()?);
        let Some((scale, mean)) = unit_us(text).zip(after("avg=")) else { return };
        let known = side.latency.unwrap_or_default();
        let max = after("max=").map(|time| time * scale);
        side.latency = Some(Latencies { mean: Some(mean * scale), max, ..known });
    }
}

/// `5669`, `20.0k`, `9294.0k`: powers of 1000.
fn scaled(text: &str) -> Option<f64> {
    let text = text.trim();
    let (digits, scale) = match text.chars().last()? {
        'k' | 'K' => (&text[..text.len() - 1], 1e3),
        'm' | 'M' => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    digits.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0).map(|value| value * scale)
}

/// Bytes of `22.1mib/s` and `23.2mb/s)`. A unit without `i` is a power of `base`: version 2 writes
/// `KB` for 1024 bytes.
fn amount(text: &str, base: f64) -> Option<f64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let value: f64 = text[..end].parse().ok()?;
    let unit: String = text[end..].chars().take_while(char::is_ascii_alphabetic).collect();
    let power = match unit.chars().next()? {
        'b' => 0,
        'k' => 1,
        'm' => 2,
        'g' => 3,
        't' => 4,
        _ => return None,
    };
    let base = if unit.contains('i') { 1024.0 } else { base };
    Some(value * base.powi(power)).filter(|bytes| bytes.is_finite())
}
