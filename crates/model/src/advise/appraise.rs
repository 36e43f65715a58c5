//! Predictions and risk of each candidate.

use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use stripewise_layout::Geometry;

use super::candidates::Candidate;
use super::rank::APART;
use super::wanted::{Need, mixed, sequential};
use super::{AdviceError, Caveats, Choice, Commands, Rates, drives};
use crate::predict::{Prediction, State, Workload, predict};
use crate::reliability::{Law, Spares, Stop, Wishes, estimate};
use crate::system::{Catalogue, System};

/// How a system keeps partial stripes of parity safe.
#[derive(Clone, Copy, PartialEq)]
enum Journaling {
    /// In memory that survives, or not at all.
    None,
    /// Partial stripes pass a journal.
    Partial,
    /// All writes do.
    All,
}

fn journaling(system: &System) -> Journaling {
    match (system.shape.level.parity_units(), system.controller_name.as_str()) {
        (0, _) => Journaling::None,
        (_, "stripewise") => Journaling::Partial,
        (_, "storage-spaces-parity") => Journaling::All,
        _ => Journaling::None,
    }
}

/// By how much a journal on the data drives slows a load.
///
/// A small write of parity reads and writes its strip and each parity: 2 (f + 1) turns of an arm; a
/// journal on the same drives adds f + 1. A long write moves n / (n - f) bytes for each byte; where it
/// passes a journal, f + 1 more.
fn journal_factor(system: &System, workload: &Workload) -> f64 {
    let kind = journaling(system);
    let copies = system.shape.level.parity_units() as f64 + 1.0;
    let width = system.shape.group_width() as f64;
    let write_share = 1.0 - workload.read_share;
    let random = {
        let cost = |write: f64| workload.read_share + write_share * write;
        cost(3.0 * copies) / cost(2.0 * copies)
    };
    let sequential = match kind {
        Journaling::All => {
            let plain = width / (width - copies + 1.0);
            let cost = |write: f64| workload.read_share + write_share * write;
            cost(plain + copies) / cost(plain)
        }
        _ => 1.0,
    };
    match kind {
        Journaling::None => 1.0,
        _ => sequential + (random - sequential) * workload.random_share,
    }
}

/// What was assumed of all of them.
pub(super) fn assumptions(need: &Need) -> Vec<String> {
    let mut assumptions = vec![
        format!("a loss of data with a probability of {} % a year is accepted", need.risk_per_year * 100.0),
        "failures, latent errors and scrubs as `model reliability` assumes them; a new drive is there after a day"
            .to_owned(),
        format!("drives are driven by {}", need.controller),
    ];
    assumptions.push(format!(
        "rates nearer to each other than {:.0} % are called equal; nine of ten predictions of published rates are \
         within 30 %",
        100.0 * (APART - 1.0)
    ));
    if need.link.is_none() {
        assumptions.push("nothing between array and client limits".to_owned());
    }
    if need.journal.is_none() {
        assumptions.push("no solid-state drives for a journal".to_owned());
    }
    if need.capacity_bytes.is_none() {
        assumptions.push("any capacity will do".to_owned());
    }
    assumptions
}

/// All of them, in their order.
pub(super) fn all(
    candidates: &[Candidate],
    need: &Need,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Vec<Choice>, AdviceError> {
    let catalogue = drives::catalogue(&need.drives);
    let done = AtomicU64::new(0);
    candidates
        .par_iter()
        .map(|candidate| {
            let choice = appraise(candidate, need, &catalogue);
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, candidates.len() as u64);
            choice
        })
        .collect()
}

fn appraise(candidate: &Candidate, need: &Need, catalogue: &Catalogue) -> Result<Choice, AdviceError> {
    let system = catalogue.build("candidate", &candidate.configuration)?;
    let redundant = Geometry::new(system.shape, 1 << 40).is_ok_and(|geometry| geometry.fault_tolerance() > 0);
    let (normal, first, uncapped) = rates(&system, State::Normal, candidate, need);
    let none = Rates { seq_write: 0.0, seq_read: 0.0, mixed: 0.0, workload: 0.0 };
    let (degraded, ..) = match redundant {
        true => rates(&system, State::Degraded, candidate, need),
        false => (none, first.clone(), Vec::new()),
    };
    let (rebuilding, under_load, _) = match redundant {
        true => rates(&system, State::Rebuilding, candidate, need),
        false => (none, first.clone(), Vec::new()),
    };
    let rebuild_seconds = first.rebuild_seconds.filter(|_| redundant);
    let loaded = under_load.rebuild_under_load_seconds.or(rebuild_seconds).filter(|_| redundant);
    let wishes = Wishes {
        restore: loaded.map(|seconds| Law::Fixed(seconds / 3600.0)),
        replacement: Some(Some(Law::Fixed(24.0))),
        spares: Spares::Dedicated(need.spares),
        drive_bytes: candidate.kind.bytes,
        ..Wishes::new(candidate.spec, candidate.drives)
    };
    let asked = wishes.question().map_err(|error| AdviceError::Wish {
        what: format!("the risk of {} cannot be estimated: {error}", candidate.spec.level),
        hint: "this is a fault of the program".to_owned(),
    })?;
    let stop = Stop {
        precision: 0.1,
        fine_precision: 0.1,
        easy_drive_years: 0.0,
        most_trials: 200_000,
        threads: None,
    };
    let found = estimate(&asked.question, asked.bytes_per_group, need.seed, &stop, &mut |_, _| true);
    let loss = found.map_err(|error| AdviceError::Wish {
        what: error.to_string(),
        hint: "this is a fault of the program".to_owned(),
    })?;
    let groups = system.shape.groups;
    let data_drives = asked.question.structure.data_per_group_milli as f64 / 1000.0
        * asked.question.structure.groups.len() as f64;
    let usable_bytes = (data_drives * candidate.kind.bytes as f64) as u64;
    let price = |name: &str| need.prices.get(name).copied();
    let cost = price(&candidate.kind.name).map(|price| {
        let journal = candidate.journal.as_ref();
        let journal =
            journal.map_or(0.0, |kind| kind.count as f64 * need.prices.get(&kind.name).unwrap_or(&0.0));
        price * (candidate.drives + need.spares) as f64 + journal
    });
    let limited = need.link.as_ref().filter(|link| normal.workload >= 0.99 * link.mb_per_s);
    Ok(Choice {
        rank: 0,
        layout: candidate.spec.level.name().to_owned(),
        drives: candidate.drives,
        drive: candidate.kind.name.clone(),
        columns: system.shape.width,
        groups,
        interleave_bytes: candidate.interleave_bytes,
        spares: need.spares,
        journal_drives: candidate.journal.as_ref().map_or(0, |kind| kind.count),
        controllers: candidate.configuration.controllers,
        usable_bytes,
        normal,
        uncapped,
        degraded,
        rebuilding,
        rebuild_seconds,
        rebuild_under_load_seconds: loaded,
        loss_probability_per_year: loss.loss_probability_per_year.mean,
        loss_ci95: loss.loss_probability_per_year.ci95,
        bottleneck: limited.map_or(first.bottleneck, |link| format!("link {}", link.name)),
        reason: String::new(),
        error_percent: 100.0 * (APART - 1.0),
        dominated_by: None,
        equal_to: Vec::new(),
        cost,
        cost_per_tb: cost.map(|cost| cost / (usable_bytes as f64 / 1e12)),
        fits: true,
        commands: Commands::default(),
        caveats: Caveats::default(),
    })
}

/// Rates in a state, the prediction of the workload's first load, and its loads' rates without the link.
fn rates(system: &System, state: State, candidate: &Candidate, need: &Need) -> (Rates, Prediction, Vec<f64>) {
    let cap = need.link.as_ref().map_or(f64::INFINITY, |link| link.mb_per_s);
    let mut known: Vec<(Workload, f64, Prediction)> = Vec::new();
    let mut rate = |load: &Workload| {
        if let Some((_, rate, prediction)) = known.iter().find(|(known, ..)| known == load) {
            return (*rate, prediction.clone());
        }
        let prediction = predict(system, state, load);
        let factor = if candidate.journal.is_some() { 1.0 } else { journal_factor(system, load) };
        let rate = prediction.mb_per_s / factor;
        known.push((load.clone(), rate, prediction.clone()));
        (rate, prediction)
    };
    let loads = &need.workload.loads;
    let uncapped: Vec<f64> = loads.iter().map(|load| rate(load).0).collect();
    let sum: f64 = uncapped.iter().map(|rate| rate.min(cap).max(1e-9).ln()).sum();
    let prediction = rate(&loads[0]).1;
    let rates = Rates {
        seq_write: rate(&sequential(false)).0.min(cap),
        seq_read: rate(&sequential(true)).0.min(cap),
        mixed: rate(&mixed()).0.min(cap),
        workload: (sum / loads.len() as f64).exp(),
    };
    (rates, prediction, uncapped)
}
