//! Replays of measured traces, as `stripewise model replay --json` prints them.

use pyo3::prelude::*;
use serde::Serialize;
use stripewise_model::replay::{Description, Replay, ReplayError, Trace, replay as replayed};

use crate::failure::{Failure, Result, json};
use crate::work;

const HINT: &str = "studies/disksim/README.md describes the form of drives and traces";

#[derive(Serialize)]
struct Answer {
    drive: String,
    requests: usize,
    demerit_ms: f64,
    demerit_percent: f64,
    mean_ms: f64,
    measured_mean_ms: f64,
    percentiles_ms: Percentiles,
    measured_percentiles_ms: Percentiles,
}

#[derive(Serialize)]
struct Percentiles {
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

/// Replays the trace of a file against the drive of a file.
#[pyfunction]
pub(crate) fn replay(py: Python<'_>, drive: String, trace: String, seed: u64) -> PyResult<String> {
    work::run(py, None, move |_| {
        let description = Description::parse(&drive, &text(&drive)?).map_err(|error| failure(&error))?;
        let trace = Trace::parse(&trace, &text(&trace)?).map_err(|error| failure(&error))?;
        let result = replayed(&description, &trace, seed).map_err(|error| failure(&error))?;
        json(&Answer {
            drive: description.name.clone(),
            requests: trace.rows.len(),
            demerit_ms: result.demerit_ms(),
            demerit_percent: result.demerit_percent(),
            mean_ms: result.mean_ms(),
            measured_mean_ms: result.measured_mean_ms(),
            percentiles_ms: percentiles(&result, |both| both.0),
            measured_percentiles_ms: percentiles(&result, |both| both.1),
        })
    })
}

fn percentiles(result: &Replay, which: impl Fn((f64, f64)) -> f64) -> Percentiles {
    let at = |share: f64| which(result.percentile_ms(share));
    Percentiles { p50: at(0.5), p90: at(0.9), p99: at(0.99), p999: at(0.999), max: at(1.0) }
}

fn text(path: &str) -> Result<String> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::other(format!("cannot read {path}: {error}"), HINT))
}

fn failure(error: &ReplayError) -> Failure {
    Failure::other(format!("cannot replay: {error}"), HINT)
}
