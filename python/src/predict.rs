//! Performance and bottleneck of one system, as `stripewise model predict --json` prints them.

use pyo3::prelude::*;
use serde::Serialize;
use stripewise_model::predict::{Latency, Limit, State, predict as predicted};
use stripewise_model::system::{Configuration, System};
use stripewise_model::validate::Expected;

use crate::catalogue::{BUILT_IN, failure};
use crate::failure::{Failure, Result, json};
use crate::loads::{self, Asked};
use crate::work;

/// The arguments of `stripewise.predict`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Request {
    system: Option<String>,
    drives: Option<String>,
    layout: Option<String>,
    columns: Option<usize>,
    groups: Option<usize>,
    interleave_bytes: Option<u64>,
    controller: String,
    controllers: usize,
    over: Option<String>,
    link: Option<String>,
    state: String,
    profile: Option<String>,
    pattern: Option<String>,
    block_bytes: Option<u64>,
    depth: usize,
    workers: usize,
    read_share: f64,
    span_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Answer {
    system: String,
    layout: &'static str,
    state: State,
    #[serde(flatten)]
    first: Measurement,
    rebuild_seconds: Option<f64>,
    drive_utilisations: Vec<f64>,
    limits: Vec<Limit>,
    measurements: Vec<Measurement>,
}

#[derive(Clone, Serialize)]
struct Measurement {
    name: String,
    mb_per_s: f64,
    iops: f64,
    latency_us: Latency,
    bottleneck: String,
    headroom: f64,
    rebuild_under_load_seconds: Option<f64>,
    drive_utilisation: f64,
    processor_utilisation: f64,
    expected_error_percent: f64,
    expected_p90_error_percent: f64,
}

/// Predicts one system under the loads of a pattern or method.
#[pyfunction]
pub(crate) fn predict(py: Python<'_>, request: Request) -> PyResult<String> {
    work::run(py, None, move |_| answer(&request))
}

fn answer(request: &Request) -> Result<String> {
    let system = system(request)?;
    let state = loads::state(&request.state)?;
    if state != State::Normal && system.shape.fault_tolerance() == 0 {
        return Err(Failure::request(
            format!("{} has no redundancy: it has no such state", system.shape.level),
            "choose a layout with redundancy, or state=\"normal\"",
        ));
    }
    let loads = match (&request.pattern, &request.profile) {
        (Some(_), Some(_)) => {
            return Err(Failure::request("both a pattern and a profile were given", "give one of them"));
        }
        (Some(pattern), None) => vec![loads::of_pattern(&Asked {
            pattern,
            block_bytes: request.block_bytes,
            depth: request.depth,
            workers: request.workers,
            read_share: request.read_share,
            span_bytes: request.span_bytes,
        })?],
        (None, profile) => loads::of_method(profile.as_deref().unwrap_or("toshiba"), request.span_bytes)?,
    };
    let mut expected = Expected::new(&BUILT_IN);
    let mut predictions = Vec::new();
    let mut measurements = Vec::new();
    for (name, load) in loads {
        let error = expected.error(&system, &load);
        let one = predicted(&system, state, &load);
        measurements.push(Measurement {
            name,
            mb_per_s: one.mb_per_s,
            iops: one.iops,
            latency_us: one.latency_us,
            bottleneck: one.bottleneck.clone(),
            headroom: one.headroom,
            rebuild_under_load_seconds: one.rebuild_under_load_seconds,
            drive_utilisation: one.drive_utilisation,
            processor_utilisation: one.processor_utilisation,
            expected_error_percent: error.median_error_percent,
            expected_p90_error_percent: error.p90_error_percent,
        });
        predictions.push(one);
    }
    let first = predictions.swap_remove(0);
    json(&Answer {
        layout: system.shape.level.name(),
        system: system.name,
        state,
        first: measurements[0].clone(),
        rebuild_seconds: first.rebuild_seconds,
        drive_utilisations: first.drives_busy,
        limits: first.limits,
        measurements,
    })
}

fn system(request: &Request) -> Result<System> {
    let found = match (&request.system, &request.drives) {
        (Some(name), None) => BUILT_IN.system(name),
        (None, Some(drives)) => {
            BUILT_IN.drives(drives).map_err(|error| failure(&error))?;
            let layout = request.layout.clone().ok_or_else(|| {
                Failure::request("drives were given without a layout", "for example layout=\"raid5\"")
            })?;
            let name = format!("{drives} {layout}");
            let configuration = Configuration {
                drives: drives.clone(),
                layout,
                columns: request.columns,
                interleave_kib: request.interleave_bytes.map(|bytes| bytes >> 10),
                groups: request.groups,
                controller: request.controller.clone(),
                controllers: request.controllers,
                over: loads::over(request.over.as_deref())?,
                file_system: false,
                link: request.link.clone(),
                journal: None,
                filled: None,
            };
            BUILT_IN.build(&name, &configuration)
        }
        _ => {
            return Err(Failure::request(
                "give either a system of the catalogue or drives with a layout",
                "for example predict(drives=\"4xmg08ada800e\", layout=\"raid5\")",
            ));
        }
    };
    found.map_err(|error| failure(&error))
}
