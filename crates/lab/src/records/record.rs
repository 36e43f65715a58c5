//! One run of a method on a target as plain data: what `lab run --json` prints, the store keeps and
//! imports become.
//!
//! Key names are part of the command line's contract; units are in the names. What a tool does not
//! report is null or absent, never zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::loads::load::Tally;
use crate::loads::workload::Workload;
use crate::scenario::Timeline;
use crate::statistics::{interval95, median};

/// A run of a method, or what a foreign tool printed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Its name in the store.
    pub run: String,
    /// What was measured.
    pub target: String,
    /// The method.
    pub profile: String,
    /// Which program drove the load, with its version.
    pub tool: String,
    /// When it began, ISO 8601.
    pub date: String,
    /// Whether it came to its end.
    pub finished: bool,
    /// Machine, file system, versions: whatever is known, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// What a reader should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The figures, in the method's order.
    pub measurements: Vec<MeasurementRecord>,
    /// What became of the load while an array lost a drive and got another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Reads only.
    Read,
    /// Writes only.
    Write,
    /// Discards only.
    Discard,
    /// Both.
    Mixed,
    /// Reads a block and writes it back.
    Rewrite,
    /// Reads somewhere, writes some of it back (bonnie).
    Seek,
    /// Creates files.
    Create,
    /// Deletes files.
    Delete,
    /// Whole transactions of a file-level tool (PostMark).
    Transaction,
}

/// What the figures in `runs` are.
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
    /// Whether more of it is better.
    pub fn higher_is_better(self) -> bool {
        matches!(self, Self::MbPerS | Self::PerSecond)
    }

    /// Behind a figure.
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
    /// Of a histogram; `None` when nothing completed.
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
    /// What requests do.
    pub op: Operation,
    /// Length of a request; null where lengths are mixed or not told.
    pub block_bytes: Option<u64>,
    /// Requests in flight for each worker.
    pub queue_depth: Option<u32>,
    /// Independent workers.
    pub workers: Option<u32>,
    /// Median of the runs; for imports as the tool printed it.
    pub mb_per_s: Option<f64>,
    /// Requests, files or transactions a second.
    pub iops: Option<f64>,
    /// Over all requests of all runs.
    pub latency_us: Option<Latencies>,
    /// What the figures in `runs` are.
    #[serde(default)]
    pub unit: Unit,
    /// Each run's figure.
    pub runs: Vec<f64>,
    /// 95 % interval of the runs, null where they are too few.
    pub ci95: Option<[f64; 2]>,
    /// What was checked about the figure's validity, and whether it holds.
    pub badges: BTreeMap<String, bool>,
    /// Why a badge does not hold, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub badge_reasons: BTreeMap<String, String>,
}

impl MeasurementRecord {
    /// A figure as a foreign tool printed it: one run.
    pub fn printed(name: impl Into<String>, op: Operation, unit: Unit, figure: f64) -> Self {
        Self { unit, ..Self::empty(name, op) }.with_runs(vec![figure])
    }

    /// Nothing measured yet of a load.
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

    /// Nothing measured yet.
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

    /// With these runs, their median and interval.
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

    /// What is the matter where a badge of this name does not hold.
    pub fn failed(badge: &str) -> String {
        let words = badge.replace('_', " ");
        match words.strip_prefix("not ").or_else(|| words.strip_prefix("no ")) {
            Some(fault) => fault.to_owned(),
            None => format!("not {words}"),
        }
    }

    /// With a badge that holds, or with the reason why it does not.
    pub fn badge(&mut self, name: &str, holds: Result<(), String>) {
        self.badges.insert(name.into(), holds.is_ok());
        match holds {
            Ok(()) => self.badge_reasons.remove(name),
            Err(why) => self.badge_reasons.insert(name.into(), why),
        };
    }
}
