//! fio as a driver: builds a job from a workload, and turns fio's `json+` output into figures and
//! histograms.
//!
//! Expects fio to be missing, to be of a version with different output, to refuse jobs, or to be
//! ended by a signal. Latencies are fio's own completion latencies in its bins (about 1 % wide),
//! from submission; its ramp time is excluded, like ours. With hosts, fio's own client sends the
//! job to a server on each, and their bins are added up.

mod job;
mod process;
mod scenario;

pub use scenario::run_failure_by_fio;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use hdrhistogram::Histogram;
use serde_json::Value;

use self::process::Fio;
use crate::loads::load::Tally;
use crate::method::{Circumstances, Profile, Statistic, Step, judge, judge_rounds, needs_more};
use crate::records::import::ImportError;
use crate::records::record::{Latencies, MeasurementRecord};
use crate::records::store::Sample;

/// A failure of fio.
#[derive(Debug, thiserror::Error)]
pub enum FioError {
    /// fio could not be started.
    #[error("cannot run fio: {0}")]
    Missing(std::io::Error),
    /// fio ended with an error.
    #[error("fio failed on {step}: {why}")]
    Failed {
        /// The measurement.
        step: String,
        /// Its last message.
        why: String,
    },
    /// The output cannot be parsed.
    #[error("cannot read what fio printed for {step}: {source}")]
    Output {
        /// The measurement.
        step: String,
        /// Cause.
        source: ImportError,
    },
    /// A load that fio does not support.
    #[error("fio cannot do {step}: {why}")]
    Unable {
        /// The measurement.
        step: String,
        /// Unsupported feature.
        why: String,
    },
    /// The caller asked for it.
    #[error("interrupted")]
    Interrupted,
    /// The figure could not be kept.
    #[error("{0}")]
    Keeping(String),
}

/// Parameters of a measurement.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    /// File or device.
    pub path: &'a Path,
    /// Bytes of it in use.
    pub size_bytes: u64,
    /// Runs of each figure.
    pub runs: u32,
    /// Maximum half-width of the 95 % interval as a share of the figure, and maximum number of runs
    /// to reach it.
    pub within: Option<(f64, u32)>,
    /// Length of each run.
    pub seconds: f64,
    /// True if the target may be written.
    pub may_write: bool,
    /// Other known facts.
    pub circumstances: Circumstances,
    /// Random seed.
    pub seed: u64,
    /// Hosts whose fio servers do the work; empty: this host.
    pub hosts: &'a [Host],
}

/// A host on which `fio --server` runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name or address.
    pub name: String,
    /// Port of its server.
    pub port: u16,
}

impl std::str::FromStr for Host {
    type Err = String;

    /// Parses `name` or `name:port`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a host; write NAME or NAME:PORT");
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) => (name, port.parse().map_err(|_| wrong())?),
            None => (text, FIO_PORT),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        match name.is_empty() || name.starts_with('-') || !name.chars().all(is_name) {
            true => Err(wrong()),
            false => Ok(Self { name: name.to_owned(), port }),
        }
    }
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.name, self.port)
    }
}

/// Default port of fio's servers.
const FIO_PORT: u16 = 8765;

/// The version as fio prints it, such as `fio-3.33`.
pub fn version() -> Result<String, FioError> {
    let output = Command::new("fio").arg("--version").output().map_err(FioError::Missing)?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Measures one step. Passes the figures so far to `keep` after every run: one for each load of the
/// step, with the rate of each host. `goes_on` gets the number of the run and the share of its time
/// that has passed, at short intervals, and ends the measurement by returning false.
pub fn measure(
    profile: &Profile,
    step: &Step,
    asked: &Asked<'_>,
    goes_on: &dyn Fn(u32, f64) -> bool,
    keep: impl Fn(usize, &MeasurementRecord, &Sample, &[(String, f64)]) -> Result<(), String>,
) -> Result<(), FioError> {
    let mut taken: Vec<FigureData> = step
        .loads()
        .map(|load| FigureData::of(MeasurementRecord::of_load(&load.name, step.op, load)))
        .collect();
    let discarded = u32::from(profile.discard_first && asked.runs > 1);
    let mut run = 0;
    let figures = |taken: &[FigureData]| taken.iter().map(|one| one.figure.clone()).collect::<Vec<_>>();
    while needs_more(profile.statistic, &figures(&taken), run, asked.runs.max(1), asked.within) {
        let mut process = Fio::start(&job::job_file(profile, step, asked, run)?, asked)?;
        let began = Instant::now();
        process.wait(&|| goes_on(run, (began.elapsed().as_secs_f64() / asked.seconds).min(1.0)))?;
        let document = process.answer(step, asked.hosts)?;
        let started_s = f64::from(run) * asked.seconds;
        run += 1;
        if run <= discarded {
            continue;
        }
        for (number, taken) in taken.iter_mut().enumerate() {
            let sample = taken.take(profile, step, asked, (&document, number), started_s)?;
            keep(number, &taken.figure, &sample, &by_host(&document, asked.hosts))
                .map_err(FioError::Keeping)?;
        }
    }
    Ok(())
}

/// A figure and its data.
struct FigureData {
    figure: MeasurementRecord,
    mb_per_s: Vec<f64>,
    iops: Vec<f64>,
    all: Tally,
    run_bytes: Vec<u64>,
    errors: u64,
}

impl FigureData {
    fn of(figure: MeasurementRecord) -> Self {
        let (mb_per_s, iops, run_bytes) = Default::default();
        Self { figure, mb_per_s, iops, all: Tally::new(), run_bytes, errors: 0 }
    }

    /// Adds the part of an answer that belongs to one load.
    fn take(
        &mut self,
        profile: &Profile,
        step: &Step,
        asked: &Asked<'_>,
        (document, number): (&Value, usize),
        started_s: f64,
    ) -> Result<Sample, FioError> {
        let sample = sample_of(document, number, started_s);
        if sample.requests == 0 {
            let why = "it finished without a request".to_owned();
            return Err(FioError::Failed { step: step.name.clone(), why });
        }
        self.add(profile, asked, &sample);
        Ok(sample)
    }

    fn add(&mut self, profile: &Profile, asked: &Asked<'_>, sample: &Sample) {
        let seconds = sample.seconds.max(1e-9);
        self.mb_per_s.push(sample.bytes as f64 / 1e6 / seconds);
        self.iops.push(sample.requests as f64 / seconds);
        self.run_bytes.push(sample.bytes);
        self.errors += sample.errors;
        for histogram in [&sample.read_latency, &sample.write_latency].into_iter().flatten() {
            self.all.requests += histogram.len();
            self.all.total_latency_ns += (histogram.mean() * histogram.len() as f64) as u128;
            // Bounds are those of the tally's own histogram; latencies beyond an hour are clamped.
            self.all.latency_ns.add(histogram).unwrap_or_default();
        }
        self.figure = self.figure.clone().with_runs(self.mb_per_s.clone());
        self.figure.mb_per_s = profile.statistic.of(&self.mb_per_s);
        self.figure.iops = profile.statistic.of(&self.iops);
        self.figure.latency_us = Latencies::of(&self.all);
        let around = Circumstances {
            direct_io: Some(true),
            region_bytes: asked.size_bytes,
            run_bytes: self.run_bytes.clone(),
            errors: self.errors,
            ..asked.circumstances.clone()
        };
        judge(&mut self.figure, &around);
        if profile.statistic == Statistic::Steady {
            judge_rounds(&mut self.figure);
        }
    }
}

/// A job file that is deleted after use.
struct JobFile {
    path: PathBuf,
}

impl JobFile {
    fn write(job: &str) -> std::io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("stripewise-{}-{number}.fio", std::process::id()));
        let mut file = File::options().write(true).create_new(true).open(&path)?;
        let made = Self { path };
        file.write_all(job.as_bytes())?;
        Ok(made)
    }
}

impl Drop for JobFile {
    fn drop(&mut self) {
        // Best effort: the file is small, and its name shows its origin.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Every job of an answer; with hosts, the jobs of each, not their sum, which has no bins.
fn jobs_of(document: &Value) -> Vec<&Value> {
    let own = document["jobs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let theirs = document["client_stats"].as_array().map(Vec::as_slice).unwrap_or_default();
    own.iter().chain(theirs.iter().filter(|job| job["jobname"] != "All clients")).collect()
}

/// Rate of each host in the last load, 10^6 bytes a second, in the order in which they were named.
fn by_host(document: &Value, hosts: &[Host]) -> Vec<(String, f64)> {
    let one = |job: &&Value| {
        let host = format!("{}:{}", job["hostname"].as_str()?, job["port"].as_u64()?);
        let sample = sample_of_jobs(&[job], 0.0);
        Some((host, sample.bytes as f64 / 1e6 / sample.seconds.max(1e-9)))
    };
    let mut given: Vec<(String, f64)> = jobs_of(document).iter().filter_map(one).collect();
    // fio lists hosts in the order in which they finish.
    given.sort_by_key(|(name, _)| hosts.iter().position(|host| host.to_string() == *name));
    given
}

/// Sample of load number `number` of an answer, over all hosts.
fn sample_of(document: &Value, number: usize, started_s: f64) -> Sample {
    let name = format!("job{number}");
    let jobs = jobs_of(document);
    let own: Vec<&Value> = jobs.iter().copied().filter(|job| job["jobname"] == name.as_str()).collect();
    sample_of_jobs(if own.is_empty() { &jobs } else { &own }, started_s)
}

fn sample_of_jobs(jobs: &[&Value], started_s: f64) -> Sample {
    let mut all = Sample { started_s, ..Sample::default() };
    for job in jobs {
        let one = sample_of_job(job);
        // Hosts work in parallel.
        all.seconds = all.seconds.max(one.seconds);
        all.bytes += one.bytes;
        all.requests += one.requests;
        all.errors += one.errors;
        all.cpu_seconds = all.cpu_seconds.or(Some(0.0)).zip(one.cpu_seconds).map(|(sum, one)| sum + one);
        add_histogram(&mut all.read_latency, one.read_latency);
        add_histogram(&mut all.write_latency, one.write_latency);
    }
    all
}

fn add_histogram(all: &mut Option<Histogram<u64>>, one: Option<Histogram<u64>>) {
    match (all.as_mut(), one) {
        // Both have the tally's bounds.
        (Some(all), Some(one)) => all.add(one).unwrap_or_default(),
        (None, one) => *all = one,
        (Some(_), None) => {}
    }
}

fn sample_of_job(job: &Value) -> Sample {
    let sides = ["read", "write", "trim"];
    let sum = |key: &str| sides.map(|side| job[side][key].as_u64().unwrap_or(0));
    let ms = sum("runtime").into_iter().max().unwrap_or(0);
    let cpu = job["usr_cpu"].as_f64().zip(job["sys_cpu"].as_f64());
    Sample {
        started_s: 0.0,
        seconds: ms as f64 / 1e3,
        bytes: sum("io_bytes").iter().sum(),
        requests: completed(job).unwrap_or_else(|| sum("total_ios").iter().sum()),
        errors: u64::from(job["error"].as_u64().unwrap_or(0) != 0),
        cpu_seconds: cpu.map(|(user, system)| (user + system) / 100.0 * ms as f64 / 1e3),
        read_latency: bins(&job["read"]),
        write_latency: bins(&job["write"]).or_else(|| bins(&job["trim"])),
        per_second: Vec::new(),
    }
}

/// Completed requests, as fio counts them for latencies. `total_ios` lacks the requests that were
/// in flight at the end of the ramp, whose bytes count.
fn completed(job: &Value) -> Option<u64> {
    let of_side = |side: &str| {
        ["lat_ns", "clat_ns"].iter().find_map(|key| job[side][*key]["N"].as_u64().filter(|count| *count > 0))
    };
    let counts: Vec<u64> = ["read", "write", "trim"].into_iter().filter_map(of_side).collect();
    (!counts.is_empty()).then(|| counts.iter().sum())
}

/// fio's bins as a histogram; of the total latency if available, else from submission on.
fn bins(side: &Value) -> Option<Histogram<u64>> {
    let found = ["lat_ns", "clat_ns"].iter().find_map(|key| side[*key]["bins"].as_object());
    let bins = found.filter(|bins| !bins.is_empty())?;
    let mut histogram = Tally::new().latency_ns;
    for (time, count) in bins {
        let (time, count) = (time.parse::<u64>().ok()?, count.as_u64()?);
        histogram.saturating_record_n(time.max(1), count);
    }
    Some(histogram)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fio_output_becomes_a_sample() {
        let document = serde_json::json!({"jobs": [{"error": 0, "usr_cpu": 10.0, "sys_cpu": 20.0,
            "read": {"io_bytes": 4096000, "total_ios": 984, "runtime": 2000,
                "lat_ns": {"N": 1000, "bins": {"100000": 900, "200000": 100}}},
            "write": {"io_bytes": 0, "total_ios": 0, "runtime": 0, "lat_ns": {"bins": {}}}}]});
        let sample = sample_of(&document, 0, 4.0);
        assert_eq!((sample.bytes, sample.requests, sample.seconds), (4_096_000, 1000, 2.0));
        let histogram = sample.read_latency.expect("bins");
        assert_eq!((histogram.len(), sample.write_latency), (1000, None));
        assert!((histogram.value_at_quantile(0.95) as f64 / 200_000.0 - 1.0).abs() < 0.01);
        assert!((sample.cpu_seconds.expect("known") - 0.6).abs() < 1e-9);
    }
}
