//! fio as a driver: a job from a workload, its `json+` output back as a figure and histograms.
//!
//! Expects fio missing or of a version that prints something else, jobs it refuses, and an end by a signal. Latencies are
//! fio's own completion latencies in its bins (about 1 % wide), from submission; its ramp time is left out as ours is.

use std::path::Path;
use std::process::{Command, Stdio};

use hdrhistogram::Histogram;
use serde_json::Value;

use crate::import::{ImportError, import};
use crate::load::Tally;
use crate::method::{Circumstances, Profile, Step, judge};
use crate::record::{Latencies, MeasurementRecord, Operation, Unit};
use crate::store::Sample;
use crate::workload::{Arrival, Pattern, Workload};

/// What can go wrong with fio.
#[derive(Debug, thiserror::Error)]
pub enum FioError {
    /// It cannot be started.
    #[error("cannot run fio: {0}")]
    Missing(std::io::Error),
    /// It ended with an error.
    #[error("fio failed on {step}: {why}")]
    Failed {
        /// The measurement.
        step: String,
        /// What it said last.
        why: String,
    },
    /// What it printed is not understood.
    #[error("cannot read what fio printed for {step}: {source}")]
    Output {
        /// The measurement.
        step: String,
        /// Why.
        source: ImportError,
    },
    /// A load that fio has no words for.
    #[error("fio cannot do {step}: {why}")]
    Unable {
        /// The measurement.
        step: String,
        /// What it cannot.
        why: String,
    },
    /// The figure could not be kept.
    #[error("{0}")]
    Keeping(String),
}

/// What is asked of it.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The file or device.
    pub path: &'a Path,
    /// Bytes of it in use.
    pub size_bytes: u64,
    /// Runs of each figure.
    pub runs: u32,
    /// Length of each.
    pub seconds: f64,
    /// Whether anything may be written.
    pub may_write: bool,
    /// Where the random choices start.
    pub seed: u64,
}

/// `fio-3.33`.
pub fn version() -> Result<String, FioError> {
    let output = Command::new("fio").arg("--version").output().map_err(FioError::Missing)?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Measures one step, giving the figure so far to `keep` after every run.
pub fn measure(
    profile: &Profile,
    step: &Step,
    asked: &Asked<'_>,
    keep: impl Fn(&MeasurementRecord, &Sample) -> Result<(), String>,
) -> Result<(), FioError> {
    let mut figure = MeasurementRecord {
        block_bytes: match step.workload.blocks.as_slice() {
            [only] => Some(only.bytes),
            _ => None,
        },
        queue_depth: Some(step.workload.depth),
        workers: Some(step.workload.jobs),
        unit: Unit::MbPerS,
        ..MeasurementRecord::empty(&step.name, step.op)
    };
    let discarded = u32::from(profile.discard_first && asked.runs > 1);
    let (mut rates, mut all, mut run_bytes) = (Vec::new(), Tally::new(), Vec::new());
    for run in 0..asked.runs.max(1) {
        let job = job_file(step, asked, run)?;
        let document = run_fio(step, &job)?;
        let sample = sample_of(&document, f64::from(run) * asked.seconds);
        if run < discarded {
            continue;
        }
        rates.push(sample.bytes as f64 / 1e6 / sample.seconds.max(1e-9));
        run_bytes.push(sample.bytes);
        for histogram in [&sample.read_latency, &sample.write_latency].into_iter().flatten() {
            all.requests += histogram.len();
            all.total_latency_ns += (histogram.mean() * histogram.len() as f64) as u128;
            // Bounds are those of the tally's own histogram; what fio saw beyond an hour is cut.
            all.latency_ns.add(histogram).unwrap_or_default();
        }
        figure = figure.with_runs(rates.clone());
        figure.iops = Some(sample.requests as f64 / sample.seconds.max(1e-9));
        figure.latency_us = Latencies::of(&all);
        let around = Circumstances {
            direct_io: Some(true),
            filled_before: asked.may_write,
            region_bytes: asked.size_bytes,
            run_bytes: run_bytes.clone(),
            errors: sample.errors,
            ..Circumstances::default()
        };
        judge(&mut figure, &around);
        keep(&figure, &sample).map_err(FioError::Keeping)?;
    }
    Ok(())
}

/// A job file with one job.
fn job_file(step: &Step, asked: &Asked<'_>, run: u32) -> Result<String, FioError> {
    let workload = &step.workload;
    let unable = |why: &str| FioError::Unable { step: step.name.clone(), why: why.to_owned() };
    let path = asked.path.to_str().filter(|path| !path.contains(['\n', '\r']));
    let path = path.ok_or_else(|| unable("a path with a line break in it"))?.replace(':', "\\:");
    let mut job = vec![
        "[job]".to_owned(),
        format!("filename={path}"),
        format!("size={}", asked.size_bytes),
        "direct=1".into(),
        "ioengine=io_uring".into(),
        "time_based=1".into(),
        format!("runtime={}ms", (asked.seconds * 1e3) as u64),
        format!("ramp_time={}ms", (asked.seconds * 100.0).min(250.0) as u64),
        format!("iodepth={}", workload.depth),
        format!("numjobs={}", workload.jobs),
        "group_reporting=1".into(),
        "norandommap=1".into(),
        "randrepeat=1".into(),
        "lat_percentiles=1".into(),
        format!("randseed={}", asked.seed.wrapping_add(u64::from(run)) & 0xffff_ffff),
    ];
    if !asked.may_write {
        job.push("readonly".into());
    }
    let reads = (workload.read_share * 100.0).round() as u32;
    let (base, sides) = match step.op {
        Operation::Read => ("read", String::new()),
        Operation::Write => ("write", String::new()),
        _ => ("rw", format!("rwmixread={reads}")),
    };
    job.extend(Some(sides).filter(|sides| !sides.is_empty()));
    job.push(blocks(workload));
    match workload.pattern {
        Pattern::Sequential => job.push(format!("rw={base}")),
        Pattern::Random => job.push(format!("rw=rand{base}")),
        Pattern::Partly(percent) => {
            job.extend([format!("rw=rand{base}"), format!("percentage_random={percent}")]);
        }
        Pattern::Strided(stride) => {
            let gap = stride.checked_sub(workload.largest_block_bytes());
            let gap = gap.ok_or_else(|| unable("strides shorter than a block"))?;
            job.push(format!("rw={base}:{gap}"));
        }
        Pattern::Zipf(theta) => job.extend([
            format!("rw=rand{base}"),
            format!("random_distribution=zipf:{:.2}", f64::from(theta) / 100.0),
        ]),
        Pattern::HotSpot(requests, region) => job.extend([
            format!("rw=rand{base}"),
            format!("random_distribution=zoned:{requests}/{region}:{}/{}", 100 - requests, 100 - region),
        ]),
    }
    // Each job its own part, as the native driver's.
    if workload.pattern.is_sequential() && workload.jobs > 1 {
        let part = asked.size_bytes / u64::from(workload.jobs) / 4096 * 4096;
        job.extend([format!("offset_increment={part}"), format!("io_size={part}")]);
    }
    let per_job = |rate: f64| (rate / f64::from(workload.jobs)).max(1.0) as u64;
    match workload.arrival {
        Arrival::Closed => {}
        Arrival::Fixed(rate) | Arrival::Limited(rate) => job.push(format!("rate_iops={}", per_job(rate))),
        Arrival::Poisson(rate) => {
            job.extend([format!("rate_iops={}", per_job(rate)), "rate_process=poisson".into()]);
        }
    }
    if workload.think_us > 0 {
        job.push(format!("thinktime={}", workload.think_us));
    }
    if workload.flush_every > 0 {
        job.push(format!("fsync={}", workload.flush_every));
    }
    Ok(job.join("\n") + "\n")
}

fn blocks(workload: &Workload) -> String {
    match workload.blocks.as_slice() {
        [only] => format!("bs={}", only.bytes),
        several => {
            let total: u32 = several.iter().map(|block| block.share).sum();
            let share = |share: u32| (f64::from(share) * 100.0 / f64::from(total.max(1))).round() as u32;
            let parts: Vec<String> =
                several.iter().map(|block| format!("{}/{}", block.bytes, share(block.share))).collect();
            format!("bssplit={}", parts.join(":"))
        }
    }
}

/// Runs fio on a job given on its standard input, and checks that its answer is one.
fn run_fio(step: &Step, job: &str) -> Result<Value, FioError> {
    use std::io::Write;
    let mut child = Command::new("fio")
        .args(["--output-format=json+", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(FioError::Missing)?;
    let mut input = child.stdin.take().expect("it was asked for");
    // If it ended early the pipe is broken, and its own message says why.
    let _ = input.write_all(job.as_bytes());
    drop(input);
    let output = child.wait_with_output().map_err(FioError::Missing)?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned() + &text;
        let why = errors.lines().rfind(|line| line.starts_with("fio:")).unwrap_or("no message");
        return Err(FioError::Failed { step: step.name.clone(), why: why.to_owned() });
    }
    import(&output.stdout).map_err(|source| FioError::Output { step: step.name.clone(), source })?;
    let start = text.find('{').unwrap_or(0);
    let mut documents = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
    Ok(documents.next().and_then(Result::ok).unwrap_or(Value::Null))
}

fn sample_of(document: &Value, started_s: f64) -> Sample {
    let job = &document["jobs"][0];
    let whole = |side: &str, key: &str| job[side][key].as_u64().unwrap_or(0);
    let ms = whole("read", "runtime").max(whole("write", "runtime"));
    let cpu = job["usr_cpu"].as_f64().zip(job["sys_cpu"].as_f64());
    Sample {
        started_s,
        seconds: ms as f64 / 1e3,
        bytes: whole("read", "io_bytes") + whole("write", "io_bytes"),
        requests: whole("read", "total_ios") + whole("write", "total_ios"),
        errors: u64::from(job["error"].as_u64().unwrap_or(0) != 0),
        cpu_seconds: cpu.map(|(user, system)| (user + system) / 100.0 * ms as f64 / 1e3),
        read_latency: bins(&job["read"]),
        write_latency: bins(&job["write"]),
        per_second: Vec::new(),
    }
}

/// fio's bins as a histogram; of the whole latency where it has it, else from submission on.
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
    use crate::method::built_in;

    fn asked() -> Asked<'static> {
        Asked {
            path: Path::new("/srv/a:b"),
            size_bytes: 1 << 30,
            runs: 1,
            seconds: 2.0,
            may_write: true,
            seed: 7,
        }
    }

    #[test]
    fn loads_become_jobs() {
        let toshiba = built_in("toshiba").expect("it");
        let mixed = job_file(&toshiba.steps[2], &asked(), 0).expect("a job");
        for line in [
            "filename=/srv/a\\:b",
            "rw=randrw",
            "rwmixread=50",
            "bssplit=4096/20:65536/50:262144/20:2097152/10",
            "iodepth=64",
            "numjobs=8",
            "runtime=2000ms",
        ] {
            assert!(mixed.lines().any(|found| found == line), "{line}: {mixed}");
        }
        let change = |change: fn(&mut Workload)| {
            let mut step = toshiba.steps[1].clone();
            change(&mut step.workload);
            job_file(&step, &asked(), 0)
        };
        assert!(change(|w| w.pattern = Pattern::Zipf(120)).expect("a job").contains("zipf:1.20"));
        assert!(
            change(|w| w.pattern = Pattern::HotSpot(80, 20)).expect("a job").contains("zoned:80/20:20/80")
        );
        assert!(
            change(|w| w.pattern = Pattern::Strided(4 << 20)).expect("a job").contains("rw=read:3145728")
        );
        assert!(change(|w| w.pattern = Pattern::Strided(4096)).is_err());
        assert!(
            change(|w| w.arrival = Arrival::Poisson(500.0)).expect("a job").contains("rate_process=poisson")
        );
    }

    #[test]
    fn its_answer_becomes_a_sample() {
        let document = serde_json::json!({"jobs": [{"error": 0, "usr_cpu": 10.0, "sys_cpu": 20.0,
            "read": {"io_bytes": 4096000, "total_ios": 1000, "runtime": 2000,
                "lat_ns": {"bins": {"100000": 900, "200000": 100}}},
            "write": {"io_bytes": 0, "total_ios": 0, "runtime": 0, "lat_ns": {"bins": {}}}}]});
        let sample = sample_of(&document, 4.0);
        assert_eq!((sample.bytes, sample.requests, sample.seconds), (4_096_000, 1000, 2.0));
        let histogram = sample.read_latency.expect("bins");
        assert_eq!((histogram.len(), sample.write_latency), (1000, None));
        assert!((histogram.value_at_quantile(0.95) as f64 / 200_000.0 - 1.0).abs() < 0.01);
        assert!((sample.cpu_seconds.expect("known") - 0.6).abs() < 1e-9);
    }
}
