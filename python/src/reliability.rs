//! Probability of data loss, as `stripewise model reliability --json` prints it.

use pyo3::prelude::*;
use serde::Serialize;
use stripewise_layout::{LayoutError, LayoutSpec};
use stripewise_model::advise::Kind;
use stripewise_model::reliability::{
    Asked as Question, BitErrors, Estimate, Law, PredictedRebuild, RebuildErrors, Repairs, Rounds, Spares,
    Stop, WishError, Wishes, notation, predicted_rebuild, run_blocks,
};

use crate::advise::one_kind;
use crate::failure::{Failure, Result, interrupted, json};
use crate::loads;
use crate::sweep::pool;
use crate::work::{self, Progress};

/// Smaller drives have no modelled rebuild.
const LEAST_BYTES: u64 = 100_000_000_000;

/// The arguments of `stripewise.reliability`.
#[derive(Clone, FromPyObject, PartialEq)]
#[pyo3(from_item_all)]
pub(crate) struct Request {
    layout: String,
    drives: usize,
    columns: Option<usize>,
    groups: Option<usize>,
    years: f64,
    mttf_hours: Option<f64>,
    mttr_hours: Option<f64>,
    failure: Option<String>,
    restore: Option<String>,
    latent: Option<String>,
    ure: Option<String>,
    scrub: Option<String>,
    spares: usize,
    distributed: bool,
    replacement: Option<String>,
    batch: Option<String>,
    parallel_repairs: bool,
    drive: Option<String>,
    capacity_bytes: Option<u64>,
    workload: String,
    controller: String,
    rebuild_mb_per_s: Option<f64>,
    on: Option<String>,
    precision_percent: Option<f64>,
    max_trials: u64,
    pub(crate) seed: u64,
    threads: Option<usize>,
}

#[derive(Serialize)]
struct Answer {
    layout: &'static str,
    drives: usize,
    years: f64,
    seed: u64,
    on: Option<String>,
    trials: u64,
    loss_probability: f64,
    ci95: [f64; 2],
    mttdl_hours: Option<f64>,
    hours_degraded_per_year: f64,
    expected_bytes_lost: f64,
    read_errors: Option<ReadErrors>,
    figures: Estimate,
    assumptions: Vec<String>,
}

/// Read errors of a data sheet beside what field data say.
#[derive(Serialize)]
struct ReadErrors {
    rebuild: RebuildErrors,
    loss_probability_by_field_data: f64,
    ci95_by_field_data: [f64; 2],
    field_data: String,
}

/// Estimates the probability of data loss. `progress(done, total)` counts trials.
#[pyfunction]
pub(crate) fn reliability(py: Python<'_>, request: Request, progress: Option<Py<PyAny>>) -> PyResult<String> {
    work::run(py, progress, move |progress| answer(&request, progress))
}

fn answer(request: &Request, progress: &Progress) -> Result<String> {
    let asked = Asked::of(request)?;
    let found = estimate(&asked.asked, request, progress)?;
    let field = asked.field.as_ref().map(|field| estimate(field, request, progress)).transpose()?;
    asked.document(request, found, field)
}

/// The rounds of an estimate. A round may take long, so an interrupt ends it after the blocks that
/// were begun.
fn estimate(asked: &Question, request: &Request, progress: &Progress) -> Result<Estimate> {
    let mut rounds = Rounds::new(&asked.question, &stop(request)?).map_err(|error| failure(error.into()))?;
    let pool = request.threads.map(pool).transpose()?;
    while let Some(blocks) = rounds.next_blocks() {
        let go_on = || progress.note(rounds.trials(), rounds.expected_trials());
        let trials =
            || run_blocks(&asked.question, asked.bytes_per_group, request.seed, blocks.clone(), &go_on);
        let round = match &pool {
            None => trials(),
            Some(pool) => pool.install(trials),
        };
        rounds.add(round.map_err(|error| failure(error.into()))?.ok_or_else(interrupted)?);
        progress.note(rounds.trials(), rounds.expected_trials());
    }
    Ok(rounds.answer(&asked.question))
}

/// The questions of a request.
pub(crate) struct Asked {
    wishes: Wishes,
    asked: Question,
    /// The same question with latent errors as found in the field, beside those of a data sheet.
    field: Option<Question>,
}

impl Asked {
    pub(crate) fn of(request: &Request) -> Result<Self> {
        let wishes = wishes(request)?;
        let asked = wishes.question().map_err(failure)?;
        let field = match wishes.bit_errors {
            None => None,
            Some(_) => Some(Wishes { bit_errors: None, ..wishes.clone() }.question().map_err(failure)?),
        };
        Ok(Self { wishes, asked, field })
    }

    /// The question, or that with latent errors as found in the field.
    pub(crate) fn question(&self, is_field: bool) -> Option<&Question> {
        if is_field { self.field.as_ref() } else { Some(&self.asked) }
    }

    /// The answer as `stripewise model reliability --json` prints it.
    pub(crate) fn document(
        &self,
        request: &Request,
        found: Estimate,
        field: Option<Estimate>,
    ) -> Result<String> {
        json(&Answer {
            layout: self.wishes.layout.level.name(),
            drives: request.drives,
            years: request.years,
            seed: request.seed,
            on: self.wishes.inner.map(|(inner, drives)| format!("{} of {drives}", inner.level.name())),
            trials: found.trials,
            loss_probability: found.loss_probability.mean,
            ci95: found.loss_probability.ci95,
            mttdl_hours: found.mttdl_hours.map(|figure| figure.mean),
            hours_degraded_per_year: found.hours_degraded_per_year.mean,
            expected_bytes_lost: found.expected_bytes_lost.mean,
            read_errors: self.read_errors(field),
            figures: found,
            assumptions: self.asked.assumptions.clone(),
        })
    }

    fn read_errors(&self, found: Option<Estimate>) -> Option<ReadErrors> {
        let (errors, field, found) = (self.wishes.bit_errors?, self.field.as_ref()?, found?);
        // A rebuild without redundancy left reads all other drives of its group.
        let groups = &field.question.structure.groups;
        let read = groups.first().map_or(1, |group| group.drives() - group.tolerance());
        let field_data = field.assumptions.iter().find(|line| line.starts_with("latent errors"));
        Some(ReadErrors {
            rebuild: RebuildErrors::of(errors, read, self.wishes.drive_bytes, &field.question),
            loss_probability_by_field_data: found.loss_probability.mean,
            ci95_by_field_data: found.loss_probability.ci95,
            field_data: field_data.cloned().unwrap_or_else(|| "no latent errors".to_owned()),
        })
    }
}

/// The stop condition of a request.
pub(crate) fn stop(request: &Request) -> Result<Stop> {
    let mut stop = Stop { most_trials: request.max_trials, threads: request.threads, ..Stop::default() };
    loads::at_least_one("max_trials", request.max_trials as usize)?;
    if let Some(threads) = request.threads {
        loads::at_least_one("threads", threads)?;
    }
    if let Some(percent) = request.precision_percent {
        stop.precision = positive("precision_percent", percent)? / 100.0;
        stop.fine_precision = stop.fine_precision.min(stop.precision);
    }
    Ok(stop)
}

fn wishes(request: &Request) -> Result<Wishes> {
    let layout = layout(request)?;
    let inner = parsed("on", request.on.as_deref(), notation::inner)?;
    let law = |text: &str| text.parse::<Law>().map_err(|error| error.to_string());
    let mean =
        |name, hours: Option<f64>| hours.map(|hours| positive(name, hours).map(Law::exponential)).transpose();
    let failure = exclusive(
        ("failure", parsed("failure", request.failure.as_deref(), law)?),
        ("mttf_hours", mean("mttf_hours", request.mttf_hours)?),
    )?;
    let restore = exclusive(
        ("restore", parsed("restore", request.restore.as_deref(), law)?),
        ("mttr_hours", mean("mttr_hours", request.mttr_hours)?),
    )?;
    let rate = request.rebuild_mb_per_s.map(|rate| positive("rebuild_mb_per_s", rate)).transpose()?;
    let is_given = restore.is_some() || rate.is_some();
    let (drive_bytes, is_ssd, predicted) =
        rebuild(request, inner.as_ref().unwrap_or(&(layout, request.drives)), is_given)?;
    let bits = |text: &str| text.parse::<BitErrors>().map_err(|error| error.to_string());
    let wishes = Wishes {
        years: positive("years", request.years)?,
        is_ssd,
        bit_errors: parsed("ure", request.ure.as_deref(), bits)?,
        failure,
        restore,
        latent_hours: parsed("latent", request.latent.as_deref(), notation::latent_hours)?,
        scrub: parsed("scrub", request.scrub.as_deref(), notation::scrub)?,
        spares: match request.distributed {
            true => Spares::Distributed(request.spares),
            false => Spares::Dedicated(request.spares),
        },
        replacement: parsed("replacement", request.replacement.as_deref(), notation::delay)?,
        batch: parsed("batch", request.batch.as_deref(), notation::batch)?,
        repairs: if request.parallel_repairs { Repairs::Parallel } else { Repairs::OneAtATime },
        drive_bytes,
        rebuild_bytes_per_second: rate.map(|rate| rate * 1e6),
        predicted,
        inner,
        ..Wishes::new(layout, request.drives)
    };
    Ok(wishes)
}

/// A drive of the array: bytes, sort, and the predicted rebuild if no time was given.
fn rebuild(
    request: &Request,
    (layout, drives): &(LayoutSpec, usize),
    is_given: bool,
) -> Result<(u64, bool, Option<PredictedRebuild>)> {
    let kind = match (&request.drive, request.capacity_bytes) {
        (Some(_), Some(_)) => {
            return Err(Failure::request("both a drive and a capacity were given", "give one of them"));
        }
        (Some(name), None) => one_kind(*drives, name)?,
        (None, Some(0)) => return Err(Failure::request("capacity is 0", "for example capacity=\"8TB\"")),
        // Too small for the model of a disk.
        (None, Some(bytes)) if bytes < LEAST_BYTES => return Ok((bytes, false, None)),
        (None, bytes) => Kind::of_size(*drives, bytes.unwrap_or(8_000_000_000_000), "hdd"),
    };
    // Layouts that do not fit the drives are refused later, by the reliability model.
    if is_given || layout.resolve(*drives).is_err() {
        return Ok((kind.bytes, kind.is_ssd, None));
    }
    let work = loads::of_use(&request.workload)?;
    let predicted = predicted_rebuild(layout, &kind, &request.controller, &work)
        .map_err(|error| Failure::request(format!("cannot predict the rebuild: {error}"), error.hint()))?;
    Ok((kind.bytes, kind.is_ssd, predicted))
}

fn layout(request: &Request) -> Result<LayoutSpec> {
    let layout: LayoutSpec = request
        .layout
        .parse()
        .map_err(|error: LayoutError| Failure::request(error.to_string(), error.hint()))?;
    match (layout.columns, request.columns) {
        (Some(fixed), Some(asked)) if fixed != asked => Err(Failure::request(
            format!("a mirror of {fixed} copies has {fixed} columns, not {asked}"),
            "use layout=\"raid1\" with columns",
        )),
        (fixed, asked) => Ok(LayoutSpec { columns: asked.or(fixed), groups: request.groups, ..layout }),
    }
}

fn positive(name: &str, number: f64) -> Result<f64> {
    match number.is_finite() && number > 0.0 {
        true => Ok(number),
        false => Err(Failure::request(format!("{name} is {number}"), "it must be above 0")),
    }
}

fn parsed<T>(
    name: &str,
    text: Option<&str>,
    parse: impl Fn(&str) -> std::result::Result<T, String>,
) -> Result<Option<T>> {
    let refused = |error| Failure::request(format!("{name}: {error}"), "docs/python.md lists the forms");
    text.map(|text| parse(text).map_err(refused)).transpose()
}

fn exclusive(one: (&str, Option<Law>), other: (&str, Option<Law>)) -> Result<Option<Law>> {
    match (one.1, other.1) {
        (Some(_), Some(_)) => {
            Err(Failure::request(format!("both {} and {} were given", one.0, other.0), "give one of them"))
        }
        (one, other) => Ok(one.or(other)),
    }
}

pub(crate) fn failure(error: WishError) -> Failure {
    let message = format!("cannot estimate the reliability: {error}");
    match error {
        WishError::Layout(error) => Failure::request(message, error.hint()),
        WishError::Question(_) => Failure::request(message, ""),
    }
}
