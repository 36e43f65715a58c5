//! Results of an evaluation as plain data: the schema of `results.json`, from which the report and
//! the remarks are made.
//!
//! Key names are part of the command line's contract; units are in the names (`mb_per_s` is 10^6
//! bytes a second). Figures that were not measured are absent or null, never zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::loads::contents::Verification;
use crate::loads::load::{Tally, Window};
use crate::loads::metered::Traffic;
use crate::loads::workload::Workload;
use crate::statistics::{IntervalMethod, interval95, mean, median, standard_deviation};

/// Version of `results.json` that this code writes.
pub const OUTPUT_VERSION: u32 = 1;

/// State of an array during a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// All drives work.
    Normal,
    /// One drive is missing.
    Degraded,
    /// A drive has been replaced and is being filled.
    Rebuilding,
    /// The replacement has been filled completely.
    Recovered,
}

impl State {
    /// States that an evaluation measures, in order.
    pub const ALL: [Self; 3] = [Self::Normal, Self::Degraded, Self::Rebuilding];
    /// States of the failure scenario, in order.
    pub const FAILURE: [Self; 4] = [Self::Normal, Self::Degraded, Self::Rebuilding, Self::Recovered];
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Normal => "normal",
            Self::Degraded => "degraded",
            Self::Rebuilding => "rebuilding",
            Self::Recovered => "recovered",
        })
    }
}

/// Results of one `evaluate` call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// [`OUTPUT_VERSION`].
    pub output_version: u32,
    /// Start time, as given by the caller (ISO 8601).
    pub date: String,
    /// Total duration.
    pub seconds: f64,
    /// The machine.
    pub environment: Environment,
    /// Exact settings.
    pub settings: Settings,
    /// Throughput of the folder or drives without an array, if measured.
    pub host: Option<HostSpeed>,
    /// One entry per layout.
    pub arrays: Vec<ArrayResult>,
    /// Limits and anomalies of the figures.
    pub remarks: Vec<Remark>,
    /// One of the layouts and a single drive on modelled drives at a disk's pace, if measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_disks: Option<Box<Evaluation>>,
    /// Peak resident memory of the process.
    pub max_resident_bytes: Option<u64>,
}

/// The exact settings of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Source of the drives: a folder, paths, or a model's name.
    pub drives: String,
    /// Drives per array, except for layouts that need more or fewer.
    pub drive_count: usize,
    /// Size of each drive.
    pub drive_bytes: u64,
    /// Requested pace: `auto`, `none` or rates.
    pub pace_asked: String,
    /// Pace of each drive; `None`: not paced.
    pub pace: Option<PaceUsed>,
    /// Runs per cell.
    pub runs: u32,
    /// Minimum length of a run.
    pub seconds_per_run: f64,
    /// Minimum length of a run in mean latencies.
    pub mean_latencies_per_run: f64,
    /// True for a quick first look.
    pub quick: bool,
    /// Random seed.
    pub seed: u64,
    /// True if drives are models and time is virtual.
    pub virtual_time: bool,
    /// Properties of modelled drives.
    #[serde(default)]
    pub model: Option<ModelUsed>,
    /// Share of drive time for the rebuild under load, in percent.
    pub rebuild_priority_percent: u32,
    /// The loads, in the order of the tables.
    pub workloads: Vec<Workload>,
}

impl Settings {
    /// Pace as text, for display beside a figure.
    pub fn pace_text(&self) -> String {
        match &self.pace {
            Some(pace) if self.pace_asked == "auto" => {
                format!("each drive paced at {} (auto)", pace.text)
            }
            Some(pace) => format!("each drive paced at {}", pace.text),
            None if self.virtual_time => "modelled drives".into(),
            None => "drives not paced".into(),
        }
    }
}

/// Properties of modelled drives that determine sizes and times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelUsed {
    /// Read and write caches of each drive together.
    pub cache_bytes: u64,
    /// Rate of long transfers in 10^6 bytes a second.
    pub mb_per_s: f64,
}

/// Pace of each drive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PaceUsed {
    /// In the form that users write, `180MB/s,400iops`.
    pub text: String,
    /// Reads and writes together, in 10^6 bytes a second.
    pub mb_per_s: Option<f64>,
    /// Requests a second.
    pub iops: Option<f64>,
}

/// Throughput of all drive files together, without an array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostSpeed {
    /// Number of files in parallel.
    pub drives: usize,
    /// Sequential reads of 1 MiB, all files together.
    pub seq_read_mb_per_s: f64,
    /// Sequential writes of 1 MiB, all files together.
    pub seq_write_mb_per_s: f64,
    /// Random reads of 4 KiB, all files together.
    pub random_read_iops: f64,
    /// Random writes of 4 KiB, all files together.
    pub random_write_iops: f64,
    /// Duration of each of the four measurements.
    pub seconds_each: f64,
}

/// Results of one array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArrayResult {
    /// Layout name.
    pub layout: String,
    /// Number of drives.
    pub drives: usize,
    /// Size of each drive.
    pub drive_bytes: u64,
    /// Columns of the layout.
    pub columns: usize,
    /// Stripe unit.
    pub interleave_bytes: u64,
    /// Data units per stripe: the number of drives that a full stripe fills with data.
    pub data_units: usize,
    /// Number of copies of each byte (1 except for mirrors).
    pub copies: usize,
    /// Maximum number of drives that may fail at once.
    pub fault_tolerance: usize,
    /// Usable bytes.
    pub capacity_bytes: u64,
    /// Throughput of the fill before the measurements.
    pub fill_mb_per_s: Option<f64>,
    /// Duration of a full rebuild without load; `None` for layouts without redundancy.
    pub rebuild_seconds: Option<f64>,
    /// Bytes written to the replacement per second in that rebuild.
    pub rebuild_mb_per_s: Option<f64>,
    /// Bytes compared in the final verification, with all drives present.
    pub verified_bytes: u64,
    /// Bytes that differed or could not be read, in any verification.
    pub corrupt_bytes: u64,
    /// Verifications of the whole array.
    pub verifications: Vec<Verification>,
    /// Measurements by state and workload.
    pub states: BTreeMap<State, BTreeMap<String, Measurement>>,
    /// Every rebuild that was started.
    pub rebuilds: Vec<RebuildRecord>,
    /// Recoverable failures.
    pub incidents: Vec<String>,
}

impl ArrayResult {
    /// Measurement of one cell of the matrix.
    pub fn cell(&self, state: State, workload: &str) -> Option<&Measurement> {
        self.states.get(&state)?.get(workload)
    }
}

/// One cell: a workload on an array in a state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Median of the runs.
    pub mb_per_s: f64,
    /// Median of the runs.
    pub iops: f64,
    /// Over all requests of all runs.
    pub latency_us: LatencySummary,
    /// Each run's throughput in MB/s.
    pub runs: Vec<f64>,
    /// 95 % confidence interval, null if the runs are too few for one.
    pub ci95: Option<[f64; 2]>,
    /// Method of the interval.
    pub ci95_method: Option<IntervalMethod>,
    /// Mean of the runs.
    pub mean_mb_per_s: f64,
    /// Sample standard deviation of the runs.
    pub standard_deviation_mb_per_s: Option<f64>,
    /// Percentage of the same load on a single drive in state normal.
    pub percent_of_single: Option<f64>,
    /// Length of each run.
    pub run_seconds: Vec<f64>,
    /// Length of each run in mean latencies of that run.
    pub run_mean_latencies: Vec<f64>,
    /// Requests kept in flight.
    pub outstanding: u64,
    /// Requests completed over all runs.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Periods of at least 0.2 s without a completion, summed over all runs.
    pub stalled_seconds: f64,
    /// Requests to all drives together during these periods.
    #[serde(default)]
    pub stalled_traffic: Traffic,
    /// Runs discarded because the rebuild ended during them.
    pub discarded_runs: u32,
    /// Reads alone, if any.
    pub read: Option<OneWay>,
    /// Writes alone, if any.
    pub write: Option<OneWay>,
    /// Processor seconds (all threads of the process, including data generation) per 10^9 bytes
    /// moved.
    pub cpu_seconds_per_gb: Option<f64>,
    /// Processor seconds per second of run.
    pub cpu_share: Option<f64>,
    /// Requests to all drives together during the runs, rebuild included.
    pub drive_traffic: Traffic,
    /// Mean latency times rate, divided by the requests in flight; 1 in a steady state (Little's
    /// law).
    pub littles_law_ratio: Option<f64>,
}

/// One direction of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OneWay {
    /// Over all runs.
    pub mb_per_s: f64,
    /// Over all runs.
    pub iops: f64,
    /// Over all runs.
    pub latency_us: LatencySummary,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Arithmetic mean, exact.
    pub mean: f64,
    /// Median, to three digits like the percentiles below.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Longest.
    pub max: f64,
}

impl LatencySummary {
    /// Summary of a tally; zeros if nothing completed.
    pub fn of(tally: &Tally) -> Self {
        let at = |quantile| tally.latency_ns.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            mean: tally.mean_latency_ns().unwrap_or(0.0) / 1e3,
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: tally.latency_ns.max() as f64 / 1e3,
        }
    }
}

impl Measurement {
    /// Summarises the windows of all valid runs. Panics without one: a cell without runs is no
    /// measurement.
    pub fn of(windows: &[Window], outstanding: u64, discarded_runs: u32) -> Self {
        assert!(!windows.is_empty(), "a measurement has at least one run");
        let runs: Vec<f64> = windows.iter().map(Window::mb_per_s).collect();
        let rates: Vec<f64> = windows.iter().map(Window::iops).collect();
        let (mut reads, mut writes) = (Tally::new(), Tally::new());
        for window in windows {
            reads.add(&window.reads);
            writes.add(&window.writes);
        }
        let mut all = reads.clone();
        all.add(&writes);
        let seconds = windows.iter().map(|window| window.duration_ns as f64 / 1e9).sum::<f64>();
        let cpu_seconds: Option<f64> = windows.iter().map(|window| window.cpu_seconds).sum();
        let traffic = |part: fn(&Window) -> &Traffic| {
            windows.iter().fold(Traffic::default(), |sum, window| sum.plus(part(window)))
        };
        let interval = interval95(&runs);
        let one_way = |tally: &Tally| {
            (tally.requests > 0).then(|| OneWay {
                mb_per_s: tally.bytes as f64 / 1e6 / seconds,
                iops: tally.requests as f64 / seconds,
                latency_us: LatencySummary::of(tally),
            })
        };
        let in_flight = all.mean_latency_ns().map(|mean_ns| mean_ns / 1e9 * all.requests as f64 / seconds);
        Self {
            mb_per_s: median(&runs).unwrap_or(0.0),
            iops: median(&rates).unwrap_or(0.0),
            latency_us: LatencySummary::of(&all),
            ci95: interval.map(|interval| [interval.low, interval.high]),
            ci95_method: interval.map(|interval| interval.method),
            mean_mb_per_s: mean(&runs).unwrap_or(0.0),
            standard_deviation_mb_per_s: standard_deviation(&runs),
            percent_of_single: None,
            runs,
            run_seconds: windows.iter().map(|window| window.duration_ns as f64 / 1e9).collect(),
            run_mean_latencies: windows
                .iter()
                .map(|window| {
                    window.mean_latency_ns().map_or(0.0, |mean_ns| window.duration_ns as f64 / mean_ns)
                })
                .collect(),
            outstanding,
            requests: all.requests,
            errors: windows.iter().map(|window| window.errors).sum(),
            stalled_seconds: windows.iter().map(|window| window.stalled_ns as f64 / 1e9).sum(),
            stalled_traffic: traffic(|window| &window.stalled_traffic),
            discarded_runs,
            read: one_way(&reads),
            write: one_way(&writes),
            cpu_seconds_per_gb: cpu_seconds
                .filter(|_| all.bytes > 0)
                .map(|used| used / (all.bytes as f64 / 1e9)),
            cpu_share: cpu_seconds.map(|used| used / seconds),
            drive_traffic: traffic(|window| &window.drive_traffic),
            littles_law_ratio: in_flight.map(|in_flight| in_flight / outstanding as f64),
        }
    }

    /// Length of all runs together.
    pub fn total_seconds(&self) -> f64 {
        self.run_seconds.iter().sum()
    }

    /// Bytes moved in all runs.
    pub fn total_bytes(&self) -> f64 {
        self.runs.iter().zip(&self.run_seconds).map(|(rate, seconds)| rate * seconds * 1e6).sum()
    }
}

/// One rebuild, from start to end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RebuildRecord {
    /// `load` or `idle`: with or without measurements (after which the rest of it is idle too).
    pub kind: RebuildKind,
    /// The lost drive.
    pub lost_drive: String,
    /// Time from providing the replacement to its last byte.
    pub seconds: f64,
    /// Part of this time without load.
    pub idle_seconds: f64,
    /// Bytes written to the replacement in this time, by the rebuild and by the load.
    pub rebuilt_bytes: u64,
    /// Requests to all drives together in this time.
    #[serde(default)]
    pub drive_traffic: Traffic,
    /// Progress and foreground load over time.
    pub timeline: Vec<RebuildPoint>,
    /// Loads during the rebuild and their times.
    pub loads: Vec<RebuildLoad>,
}

/// Activity besides a rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RebuildKind {
    /// Measurements ran during its beginning.
    Load,
    /// Nothing else ran.
    Idle,
}

/// A sample of a rebuild's progress.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RebuildPoint {
    /// Time since the replacement was provided.
    pub seconds: f64,
    /// Progress.
    pub percent: f64,
    /// Rate of writes to the replacement since the last point, by the rebuild and by the load.
    pub rebuild_mb_per_s: f64,
    /// Throughput of the load since the last point.
    pub load_mb_per_s: f64,
}

/// A load during a rebuild.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RebuildLoad {
    /// Name of the workload.
    pub workload: String,
    /// Start, since the replacement was provided.
    pub from_seconds: f64,
    /// End, since the replacement was provided.
    pub to_seconds: f64,
}

/// Importance of a remark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Informative.
    Note,
    /// A figure is misleading.
    Warning,
    /// A fault.
    Error,
}

/// A remark on all results, on one array, or on one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remark {
    /// Importance.
    pub severity: Severity,
    /// Layout, if it is about one.
    pub layout: Option<String>,
    /// State, if it is about one.
    pub state: Option<State>,
    /// Workload, if it is about one.
    pub workload: Option<String>,
    /// Text of the remark.
    pub text: String,
}

impl Remark {
    /// Subject as text: `raid5, degraded, seq_read`.
    pub fn subject(&self) -> String {
        let state = self.state.map(|state| state.to_string());
        let parts = [self.layout.clone(), state, self.workload.clone()];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { "all".into() } else { parts.join(", ") }
    }
}
