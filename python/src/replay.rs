//! Replays of measured traces, as `stripewise model replay --json` prints them.

use pyo3::prelude::*;
use stripewise_model::replay::{Description, ReplayError, Trace, replay as replayed};

use crate::failure::{Failure, Result, json};
use crate::work;

const HINT: &str = "studies/disksim/README.md describes the form of drives and traces";

/// Replays the trace of a file against the drive of a file.
#[pyfunction]
pub(crate) fn replay(py: Python<'_>, drive: String, trace: String, seed: u64) -> PyResult<String> {
    work::run(py, None, move |_| {
        let description = Description::parse(&drive, &text(&drive)?).map_err(|error| failure(&error))?;
        let trace = Trace::parse(&trace, &text(&trace)?).map_err(|error| failure(&error))?;
        let result = replayed(&description, &trace, seed).map_err(|error| failure(&error))?;
        json(&result.summary(&description, &trace))
    })
}

fn text(path: &str) -> Result<String> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::other(format!("cannot read {path}: {error}"), HINT))
}

fn failure(error: &ReplayError) -> Failure {
    Failure::other(format!("cannot replay: {error}"), HINT)
}
