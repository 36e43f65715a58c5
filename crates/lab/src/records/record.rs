//! One run of a method on a target as plain data: the output of `lab run --json`, the format of the
//! store and of imports.
//!
//! Key names are part of the command line's contract; units are in the names. Values that a tool
//! does not report are null or absent, never zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::loads::load::Tally;
use crate::loads::workload::Workload;
use crate::scenario::Timeline;
use crate::statistics::{interval95, median};

/// A run of a method, or an imported result of another tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Name in the store.
    pub run: String,
    /// Measured target.
    pub target: String,
    /// Profile name.
    pub profile: String,
    /// Program that drove the load, with its version.
    pub tool: String,
    /// Start time, ISO 8601.
    pub date: String,
    /// True if the run is complete.
    pub finished: bool,
    /// Machine, file system, versions: known facts by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Remarks for readers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Figures in the method's order.
    pub measurements: Vec<MeasurementRecord>,
    /// Load over time while an array lost and replaced a drive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
}

/// Operation of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Reads only.
    Read,
    /// Writes only.
    Write,
    /// Discards only.
    Discard,
    /// Reads and writes.
    Mixed,
    /// Reads a block and writes it back.
    Rewrite,
    /// Reads at random places, writes some blocks back (bonnie).
    Seek,
    /// Creates files.
    Create,
    /// Deletes files.
    Delete,
    /// Whole transactions of a file-level tool (PostMark).
    Transaction,
}

/// Unit of the figures in `runs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// 10^6 bytes a second.
    #[default]
    MbPerS,
    /// Requests, files or transactions a second.
    PerSecond,
    /// Microseconds a request.
    LatencyUs,
    /// Seconds in all.
    Seconds,
    /// Percent of a processor.
    CpuPercent,
}

impl Unit {
    /// True if higher values are better.
    pub fn higher_is_better(self) -> bool {
        matches!(self, Self::MbPerS | Self::PerSecond)
    }

    /// Unit symbol.
    pub fn text(self) -> &'static str {
        match self {
            Self::MbPerS => "MB/s",
            Self::PerSecond => "/s",
            Self::LatencyUs => "us",
            Self::Seconds => "s",
            Self::CpuPercent => "% CPU",
        }
    }
}

/// Latencies in microseconds, as far as the tool reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// Arithmetic mean.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p999: Option<f64>,
    /// Longest.
    pub max: Option<f64>,
}

impl Latencies {
    /// Summary of a tally; `None` if nothing completed.
    pub fn of(tally: &Tally) -> Option<Self> {
        let mean = tally.mean_latency_ns()?;
        let at = |quantile| Some(tally.latency_ns.value_at_quantile(quantile) as f64 / 1e3);
        Some(Self {
            mean: Some(mean / 1e3),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: Some(tally.latency_ns.max() as f64 / 1e3),
        })
    }
}

/// One figure with its runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasurementRecord {
    /// The method's name for it, unique within the run.
    pub name: String,
    /// Operation of the requests.
    pub op: Operation,
    /// Length of a request; null if lengths are mixed or unknown.
    pub block_bytes: Option<u64>,
    /// Requests in flight for each worker.
    pub queue_depth: Option<u32>,
    /// Independent workers.
    pub workers: Option<u32>,
    /// Median of the runs; for imports as printed by the tool.
    pub mb_per_s: Option<f64>,
    /// Requests, files or transactions a second.
    pub iops: Option<f64>,
    /// Latencies over all requests of all runs.
    pub latency_us: Option<Latencies>,
    /// Unit of the figures in `runs`.
    #[serde(default)]
    pub unit: Unit,
    /// Figure of each run.
    pub runs: Vec<f64>,
    /// 95 % interval of the runs, null if they are too few.
    pub ci95: Option<[f64; 2]>,
    /// Validity checks of the figure and their outcomes.
    pub badges: BTreeMap<String, bool>,
    /// Reasons of failed badges, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub badge_reasons: BTreeMap<String, String>,
}

impl MeasurementRecord {
    /// Creates a figure as printed by another tool: one run.
    pub fn printed(name: impl Into<String>, op: Operation, unit: Unit, figure: f64) -> Self {
        Self { unit, ..Self::empty(name, op) }.with_runs(vec![figure])
    }

    /// Creates an empty figure of a load.
    pub fn of_load(name: &str, op: Operation, workload: &Workload) -> Self {
        let split = workload.split();
        Self {
            block_bytes: match split.as_slice() {
                [only] => Some(only.bytes),
                _ => None,
            },
            queue_depth: Some(workload.depth),
            workers: Some(workload.jobs),
            ..Self::empty(name, op)
        }
    }

    /// Creates an empty figure.
    pub fn empty(name: impl Into<String>, op: Operation) -> Self {
        Self {
            name: name.into(),
            op,
            block_bytes: None,
            queue_depth: None,
            workers: None,
            mb_per_s: None,
            iops: None,
            latency_us: None,
            unit: Unit::MbPerS,
            runs: Vec::new(),
            ci95: None,
            badges: BTreeMap::new(),
            badge_reasons: BTreeMap::new(),
        }
    }

    /// Sets the runs, their median and interval.
    pub fn with_runs(mut self, runs: Vec<f64>) -> Self {
        let middle = median(&runs);
        match self.unit {
            Unit::MbPerS => self.mb_per_s = middle,
            Unit::PerSecond => self.iops = middle,
            Unit::LatencyUs | Unit::Seconds | Unit::CpuPercent => {}
        }
        self.ci95 = interval95(&runs).map(|interval| [interval.low, interval.high]);
        self.runs = runs;
        self
    }

    /// Text for a failed badge.
    pub fn failed(badge: &str) -> String {
        let words = badge.replace('_', " ");
        match words.strip_prefix("not ").or_else(|| words.strip_prefix("no ")) {
            Some(fault) => fault.to_owned(),
            None => format!("not {words}"),
        }
    }

    /// Sets a badge that holds, or the reason why it does not.
    pub fn badge(&mut self, name: &str, holds: Result<(), String>) {
        self.badges.insert(name.into(), holds.is_ok());
        match holds {
            Ok(()) => self.badge_reasons.remove(name),
            Err(why) => self.badge_reasons.insert(name.into(), why),
        };
    }
}
