//! Predictions and risk of each candidate.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use rayon::prelude::*;
use stripewise_layout::Geometry;

use super::candidates::Candidate;
use super::rank::APART;
use super::wanted::{Need, mixed, sequential};
use super::{AdviceError, Caveats, Choice, Commands, Kind, Rates, drives};
use crate::predict::{Prediction, State, Workload, predict};
use crate::reliability::{Law, Spares, Stop, Wishes, estimate};
use crate::system::{Catalogue, Configuration, System};
use crate::validate::Expected;

/// Protection of partial parity stripes in a system.
#[derive(Clone, Copy, PartialEq)]
enum Journaling {
    /// In memory that survives, or not protected.
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

/// Slow-down of a load by a journal on the data drives.
///
/// A small write of parity reads and writes its strip and each parity: 2 (f + 1) turns of an arm; a
/// journal on the same drives adds f + 1. A long write moves n / (n - f) bytes for each byte; where
/// it passes a journal, f + 1 more.
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

/// Assumptions common to all candidates.
pub(super) fn assumptions(need: &Need) -> Vec<String> {
    let mut assumptions = vec![
        format!("a loss of data with a probability of {} % a year is accepted", short(need.risk_per_year * 100.0)),
        "failures, latent errors and scrubs as `model reliability` assumes them; a new drive is there after a day"
            .to_owned(),
        format!("drives are driven by {}", need.controller),
    ];
    assumptions
        .push(format!("rates nearer to each other than {:.0} % are called equal", 100.0 * (APART - 1.0)));
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

/// Rounds away the digits below the arithmetic's error.
fn short(number: f64) -> f64 {
    (number * 1e9).round() / 1e9
}

/// Median and ninetieth percentile of the error of such rates in published studies.
fn expected_errors(predicted: &Predicted, need: &Need) -> (f64, f64) {
    static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(Catalogue::built_in);
    static EXPECTED: LazyLock<Mutex<Expected<'static>>> =
        LazyLock::new(|| Mutex::new(Expected::new(&CATALOGUE)));
    let mut expected = EXPECTED.lock().unwrap_or_else(PoisonError::into_inner);
    let errors = need.workload.loads.iter().map(|load| expected.error(&predicted.system, load));
    errors.fold((0.0, 0.0), |worst: (f64, f64), error| {
        (worst.0.max(error.median_error_percent), worst.1.max(error.p90_error_percent))
    })
}

/// All of them, in their order.
pub(super) fn all(
    candidates: &[Candidate],
    need: &Need,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Vec<Choice>, AdviceError> {
    let catalogue = drives::catalogue(&need.drives);
    // Candidates with and without a journal are predicted once.
    let mut configurations: Vec<&Configuration> = Vec::new();
    for candidate in candidates {
        if !configurations.contains(&&candidate.configuration) {
            configurations.push(&candidate.configuration);
        }
    }
    let done = AtomicU64::new(0);
    let predicted: Result<Vec<Predicted>, AdviceError> = configurations
        .par_iter()
        .map(|configuration| {
            let predicted = Predicted::of(configuration, need, &catalogue);
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, configurations.len() as u64);
            predicted
        })
        .collect();
    let predicted = predicted?;
    let errors: Vec<(f64, f64)> = predicted.iter().map(|one| expected_errors(one, need)).collect();
    candidates
        .par_iter()
        .map(|candidate| {
            let of_it = configurations.iter().position(|known| **known == candidate.configuration);
            let of_it = of_it.expect("all were predicted");
            appraise(candidate, need, &predicted[of_it], errors[of_it])
        })
        .collect()
}

/// A system under all loads.
struct Predicted {
    system: System,
    redundant: bool,
    loads: Vec<Workload>,
    normal: Vec<Prediction>,
    degraded: Vec<Prediction>,
    rebuilding: Vec<Prediction>,
}

impl Predicted {
    fn of(configuration: &Configuration, need: &Need, catalogue: &Catalogue) -> Result<Self, AdviceError> {
        let system = catalogue.build("candidate", configuration)?;
        let redundant =
            Geometry::new(system.shape, 1 << 40).is_ok_and(|geometry| geometry.fault_tolerance() > 0);
        let mut loads = vec![sequential(false), sequential(true), mixed()];
        for load in &need.workload.loads {
            if !loads.contains(load) {
                loads.push(load.clone());
            }
        }
        let all =
            |state| -> Vec<Prediction> { loads.iter().map(|load| predict(&system, state, load)).collect() };
        let normal = all(State::Normal);
        let (degraded, rebuilding) = match redundant {
            true => (all(State::Degraded), all(State::Rebuilding)),
            false => (Vec::new(), Vec::new()),
        };
        Ok(Self { system, redundant, loads, normal, degraded, rebuilding })
    }

    /// Returns the prediction of the first load that counts.
    fn first<'a>(&self, of: &'a [Prediction], need: &Need) -> Option<&'a Prediction> {
        of.get(self.loads.iter().position(|load| *load == need.workload.loads[0])?)
    }

    /// Rates in a state, and those of the workload's loads without the link; nothing where there is
    /// no such state.
    fn rates(&self, of: &[Prediction], candidate: &Candidate, need: &Need) -> (Rates, Vec<f64>) {
        let cap = need.link.as_ref().map_or(f64::INFINITY, |link| link.mb_per_s);
        let rate = |load: &Workload| {
            let at = self.loads.iter().position(|known| known == load);
            let found = at.and_then(|at| of.get(at)).map_or(0.0, |prediction| prediction.mb_per_s);
            match candidate.journal {
                Some(_) => found,
                None => found / journal_factor(&self.system, load),
            }
        };
        let uncapped: Vec<f64> = need.workload.loads.iter().map(rate).collect();
        let sum: f64 = uncapped.iter().map(|rate| rate.min(cap).ln()).sum();
        let rates = Rates {
            seq_write: rate(&sequential(false)).min(cap),
            seq_read: rate(&sequential(true)).min(cap),
            mixed: rate(&mixed()).min(cap),
            workload: (sum / uncapped.len() as f64).exp(),
        };
        (rates, uncapped)
    }
}

fn appraise(
    candidate: &Candidate,
    need: &Need,
    predicted: &Predicted,
    errors: (f64, f64),
) -> Result<Choice, AdviceError> {
    let Predicted { system, redundant, .. } = predicted;
    let redundant = *redundant;
    let (normal, uncapped) = predicted.rates(&predicted.normal, candidate, need);
    let (degraded, _) = predicted.rates(&predicted.degraded, candidate, need);
    let (rebuilding, _) = predicted.rates(&predicted.rebuilding, candidate, need);
    let first = predicted.first(&predicted.normal, need).expect("all loads are predicted").clone();
    let under_load = predicted.first(&predicted.rebuilding, need);
    let rebuild_seconds = first.rebuild_seconds.filter(|_| redundant);
    let loaded = under_load.and_then(|under| under.rebuild_under_load_seconds).or(rebuild_seconds);
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
    let price =
        |kind: &Kind| need.prices.iter().find(|(name, _)| kind.is_named(name)).map(|(_, price)| *price);
    let cost = price(&candidate.kind).map(|price_of_one| {
        let journal = candidate.journal.as_ref();
        let journal = journal.map_or(0.0, |kind| kind.count as f64 * price(kind).unwrap_or(0.0));
        price_of_one * (candidate.drives + need.spares) as f64 + journal
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
        error_percent: short(100.0 * (APART - 1.0)),
        rate_median_error_percent: errors.0,
        rate_p90_error_percent: errors.1,
        dominated_by: None,
        equal_to: Vec::new(),
        cost,
        cost_per_tb: cost.map(|cost| cost / (usable_bytes as f64 / 1e12)),
        fits: true,
        commands: Commands::default(),
        caveats: Caveats::default(),
    })
}
