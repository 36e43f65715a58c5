//! What an evaluation found, as plain data: the shape of `results.json`, which the report and the
//! remarks are made from.
//!
//! Key names are part of the command line's contract; units are in the names (`mb_per_s` is 10^6
//! bytes a second). Figures that were not taken are absent or null, never zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::loads::contents::Verification;
use crate::loads::load::{Tally, Window};
use crate::loads::metered::Traffic;
use crate::loads::workload::Workload;
use crate::statistics::{IntervalMethod, interval95, mean, median, standard_deviation};

/// The version of `results.json` that this code writes.
pub const OUTPUT_VERSION: u32 = 1;

/// What an array goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// All drives work.
    Normal,
    /// One drive is missing.
    Degraded,
    /// A drive has been replaced and is being filled.
    Rebuilding,
    /// The replacement is whole.
    Recovered,
}

impl State {
    /// Those that an evaluation measures, in the order in which an array goes through them.
    pub const ALL: [Self; 3] = [Self::Normal, Self::Degraded, Self::Rebuilding];
    /// Those of the scenario of a failure.
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

/// Everything that one call of `evaluate` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// [`OUTPUT_VERSION`].
    pub output_version: u32,
    /// When it began, as the caller gave it (ISO 8601).
    pub date: String,
    /// How long it took in all.
    pub seconds: f64,
    /// The machine.
    pub environment: Environment,
    /// What was asked for and what was made of it.
    pub settings: Settings,
    /// What the folder or drives gave without any array, where it was measured.
    pub host: Option<HostSpeed>,
    /// One entry per layout.
    pub arrays: Vec<ArrayResult>,
    /// What a reader should know before believing a figure.
    pub remarks: Vec<Remark>,
    /// One of the layouts, and a single drive, on modelled drives at a disk's pace, where that was
    /// measured too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_disks: Option<Box<Evaluation>>,
    /// The most memory the process had at any time.
    pub max_resident_bytes: Option<u64>,
}

/// The exact settings of an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Where the drives are: a folder, paths, or a model's name.
    pub drives: String,
    /// Drives per array, except where a layout says otherwise.
    pub drive_count: usize,
    /// Bytes of each drive.
    pub drive_bytes: u64,
    /// Pace as asked for: `auto`, `none` or rates.
    pub pace_asked: String,
    /// Pace each drive was held to; `None`: not paced.
    pub pace: Option<PaceUsed>,
    /// Runs per cell.
    pub runs: u32,
    /// Least length of a run.
    pub seconds_per_run: f64,
    /// A run also lasts at least this many mean latencies.
    pub mean_latencies_per_run: f64,
    /// Whether figures are only a first look.
    pub quick: bool,
    /// Where all random choices start.
    pub seed: u64,
    /// Whether drives are models and time is virtual.
    pub virtual_time: bool,
    /// What is known of drives that are modelled.
    #[serde(default)]
    pub model: Option<ModelUsed>,
    /// Share of drive time given to the rebuild under load, in percent.
    pub rebuild_priority_percent: u32,
    /// The loads, in the order of the tables.
    pub workloads: Vec<Workload>,
}

impl Settings {
    /// Pace in words, to stand beside a figure.
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

/// Modelled drives, as far as sizes and times depend on them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelUsed {
    /// Caches of reads and writes of each drive together.
    pub cache_bytes: u64,
    /// 10^6 bytes a second of long transfers.
    pub mb_per_s: f64,
}

/// The rates each drive was held to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PaceUsed {
    /// As a person writes it, `180MB/s,400iops`.
    pub text: String,
    /// 10^6 bytes a second, reads and writes together.
    pub mb_per_s: Option<f64>,
    /// Requests a second.
    pub iops: Option<f64>,
}

/// What all drive files together give, without any array above them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostSpeed {
    /// How many files at once.
    pub drives: usize,
    /// Sequential reads of 1 MiB, all files together.
    pub seq_read_mb_per_s: f64,
    /// Sequential writes of 1 MiB, all files together.
    pub seq_write_mb_per_s: f64,
    /// Random reads of 4 KiB, all files together.
    pub random_read_iops: f64,
    /// Random writes of 4 KiB, all files together.
    pub random_write_iops: f64,
    /// How long each of the four was measured.
    pub seconds_each: f64,
}

/// One array's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArrayResult {
    /// LAYOUT name.
    pub layout: String,
    /// Drives it is made of.
    pub drives: usize,
    /// Bytes of each of them.
    pub drive_bytes: u64,
    /// Columns of the layout.
    pub columns: usize,
    /// Stripe unit.
    pub interleave_bytes: u64,
    /// Data units per stripe: how many drives' worth of a full stripe is data.
    pub data_units: usize,
    /// How many copies of each byte there are (1 but for mirrors).
    pub copies: usize,
    /// How many drives may be lost at once, any of them.
    pub fault_tolerance: usize,
    /// Usable bytes.
    pub capacity_bytes: u64,
    /// Filling it before the measurements.
    pub fill_mb_per_s: Option<f64>,
    /// A full rebuild without load; `None` for layouts without redundancy.
    pub rebuild_seconds: Option<f64>,
    /// Bytes written to the replacement per second in that rebuild.
    pub rebuild_mb_per_s: Option<f64>,
    /// Bytes compared in the end, with all drives present.
    pub verified_bytes: u64,
    /// Bytes that differed or could not be read, in any of the verifications.
    pub corrupt_bytes: u64,
    /// Each comparison of the whole array.
    pub verifications: Vec<Verification>,
    /// The measurements.
    pub states: BTreeMap<State, BTreeMap<String, Measurement>>,
    /// Every rebuild that was begun.
    pub rebuilds: Vec<RebuildRecord>,
    /// Anything that went wrong and was gone on from.
    pub incidents: Vec<String>,
}

impl ArrayResult {
    /// One cell of the matrix.
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
    /// 95 % interval, null where the runs are too few for one.
    pub ci95: Option<[f64; 2]>,
    /// How it was found.
    pub ci95_method: Option<IntervalMethod>,
    /// Mean of the runs.
    pub mean_mb_per_s: f64,
    /// Sample standard deviation of the runs.
    pub standard_deviation_mb_per_s: Option<f64>,
    /// Of the same load on a single drive in state normal.
    pub percent_of_single: Option<f64>,
    /// Length of each run.
    pub run_seconds: Vec<f64>,
    /// Length of each run in mean latencies of its own.
    pub run_mean_latencies: Vec<f64>,
    /// Requests kept in flight.
    pub outstanding: u64,
    /// Requests completed over all runs.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Times of 0.2 s and more in which nothing completed, added up over all runs.
    pub stalled_seconds: f64,
    /// What all drives together were asked in these times.
    #[serde(default)]
    pub stalled_traffic: Traffic,
    /// Runs thrown away, because the rebuild ended under them.
    pub discarded_runs: u32,
    /// Reads alone, where there are any.
    pub read: Option<OneWay>,
    /// Writes alone, where there are any.
    pub write: Option<OneWay>,
    /// Processor seconds (all threads of the process, making the data included) per 10^9 bytes
    /// moved.
    pub cpu_seconds_per_gb: Option<f64>,
    /// Processor seconds per second of run.
    pub cpu_share: Option<f64>,
    /// What all drives together were asked meanwhile, rebuild included.
    pub drive_traffic: Traffic,
    /// Mean latency times rate, over requests kept in flight; 1 in a steady state (Little's law).
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
    /// Median, to three digits as the percentiles below.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Longest.
    pub max: f64,
}

impl LatencySummary {
    /// Of a tally; zeros when nothing completed.
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
    /// From the windows of all runs that count. Panics without one: a cell without runs is no
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

/// One rebuild, from its start to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RebuildRecord {
    /// `load` or `idle`: whether measurements ran meanwhile (its rest is then idle too).
    pub kind: RebuildKind,
    /// The drive that was lost.
    pub lost_drive: String,
    /// From the replacement's being given to the last byte.
    pub seconds: f64,
    /// Of these, without load.
    pub idle_seconds: f64,
    /// Bytes written to the replacement meanwhile, by the rebuild and by the load.
    pub rebuilt_bytes: u64,
    /// What all drives together were asked meanwhile.
    #[serde(default)]
    pub drive_traffic: Traffic,
    /// Progress and foreground load against time.
    pub timeline: Vec<RebuildPoint>,
    /// Which load ran when.
    pub loads: Vec<RebuildLoad>,
}

/// What else happened during a rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RebuildKind {
    /// Measurements ran at its beginning.
    Load,
    /// Nothing else ran.
    Idle,
}

/// A moment of a rebuild.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RebuildPoint {
    /// Since the replacement was given.
    pub seconds: f64,
    /// Done.
    pub percent: f64,
    /// Written to the replacement since the last point, by the rebuild and by the load.
    pub rebuild_mb_per_s: f64,
    /// What the load got since the last point.
    pub load_mb_per_s: f64,
}

/// A load that ran during a rebuild.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RebuildLoad {
    /// The workload's name.
    pub workload: String,
    /// Since the replacement was given.
    pub from_seconds: f64,
    /// Since the replacement was given.
    pub to_seconds: f64,
}

/// How much a remark matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Good to know.
    Note,
    /// A figure does not show what it seems to.
    Warning,
    /// Something is broken.
    Error,
}

/// A remark on the results, on one array, or on one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remark {
    /// How much it matters.
    pub severity: Severity,
    /// The array, if it is about one.
    pub layout: Option<String>,
    /// The state, if it is about one.
    pub state: Option<State>,
    /// The workload, if it is about one.
    pub workload: Option<String>,
    /// In words.
    pub text: String,
}

impl Remark {
    /// What it is about, in words: `raid5, degraded, seq_read`.
    pub fn subject(&self) -> String {
        let state = self.state.map(|state| state.to_string());
        let parts = [self.layout.clone(), state, self.workload.clone()];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { "all".into() } else { parts.join(", ") }
    }
}
