//! The outcome of a replay as a document: error, means and percentiles. The command line and the
//! Python package print it.

use serde::Serialize;

use super::{Description, Replay, Trace};

/// A replay beside the measured response times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReplaySummary {
    /// Name of the drive.
    pub drive: String,
    /// Number of requests of the trace.
    pub requests: usize,
    /// Root mean square of the distance between the two distributions.
    pub demerit_ms: f64,
    /// The same as a share of the measured mean.
    pub demerit_percent: f64,
    /// Mean of the simulated times.
    pub mean_ms: f64,
    /// Mean of the measured times.
    pub measured_mean_ms: f64,
    /// Percentiles of the simulated times.
    pub percentiles_ms: Percentiles,
    /// Percentiles of the measured times.
    pub measured_percentiles_ms: Percentiles,
}

/// Percentiles of response times, ms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// Median.
    pub p50: f64,
    /// 90 % are not longer.
    pub p90: f64,
    /// 99 % are not longer.
    pub p99: f64,
    /// 99.9 % are not longer.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl Replay {
    /// Summary of this replay of `trace` against the drive of `description`.
    pub fn summary(&self, description: &Description, trace: &Trace) -> ReplaySummary {
        ReplaySummary {
            drive: description.name.clone(),
            requests: trace.rows.len(),
            demerit_ms: self.demerit_ms(),
            demerit_percent: self.demerit_percent(),
            mean_ms: self.mean_ms(),
            measured_mean_ms: self.measured_mean_ms(),
            percentiles_ms: self.percentiles(|both| both.0),
            measured_percentiles_ms: self.percentiles(|both| both.1),
        }
    }

    fn percentiles(&self, which: impl Fn((f64, f64)) -> f64) -> Percentiles {
        let at = |share: f64| which(self.percentile_ms(share));
        Percentiles { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: at(1.0) }
    }
}
