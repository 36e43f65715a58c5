//! Predictions and risk of each candidate.

use std::sync::{LazyLock, Mutex, PoisonError};

use rayon::prelude::*;

use super::candidates::Candidate;
use super::rank::APART;
use super::wanted::{Need, mixed, sequential};
use super::work::Work;
use super::{AdviceError, Caveats, Choice, Commands, Member, Rates, drives};
use crate::predict::{Prediction, SEED, State, Workload, predict_roughly};
use crate::reliability::{Estimate, Law, Spares, Stop, Wishes, chance_per_year, estimate};
use crate::system::{Catalogue, Configuration, System};
use crate::validate::Expected;

/// Half-width of the interval of a risk; ranking calls nearer ones equal.
const RISK_PRECISION: f64 = 0.2;
/// Drives in all predicted arrays above which fewer requests are simulated for each.
const MANY_DRIVES: usize = 200;
/// Share of the usual number of requests then: the rates vary by some 4 %.
const SURVEY: f64 = 0.5;

/// Mission over which a yearly risk is averaged.
const YEARS: f64 = 10.0;

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
        (_, "storage-spaces") => Journaling::All,
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
        format!("no choice loses data with more than {}", chance_per_year(need.risk_per_year)),
        "failures, latent errors and scrubs as `model reliability` assumes them for such drives; a \
         new drive is there after a day"
            .to_owned(),
        format!("drives are driven by {}", need.controller),
    ];
    assumptions
        .push(format!("rates nearer to each other than {:.0} % are called equal", 100.0 * (APART - 1.0)));
    if need.link.as_ref().is_some_and(super::Link::is_usb) {
        assumptions.push(
            "an enclosure behind USB takes one command at a time, as the box of study 004 does".to_owned(),
        );
    }
    if need.controller == "stripewise" {
        assumptions.push("this program serves a pool on one core of the host".to_owned());
    }
    if need.buy && need.prices.is_empty() {
        assumptions.push(match need.counts_raw_capacity() {
            true => {
                "no prices: where enough is held, less raw capacity counts as cheaper; --price gives prices"
                    .to_owned()
            }
            false => "no prices: larger drives count as no dearer; --price distinguishes them".to_owned(),
        });
    }
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

/// Appraises these candidates, in their order. `work` counts an array predicted or a risk
/// estimated.
pub(super) fn all(
    candidates: &[&Candidate],
    need: &Need,
    work: &Work<'_>,
) -> Result<Vec<Choice>, AdviceError> {
    let catalogue = drives::catalogue(&need.drives);
    // Candidates with and without a journal, and drives that differ in size only, are predicted
    // once.
    let mut configurations: Vec<&Configuration> = Vec::new();
    for candidate in candidates {
        if !configurations.contains(&&candidate.configuration) {
            configurations.push(&candidate.configuration);
        }
    }
    work.expect(configurations.len() + candidates.len());
    let drives: usize = candidates.iter().map(|candidate| candidate.drives).sum();
    let effort = if drives > MANY_DRIVES { SURVEY } else { 1.0 };
    let predicted: Result<Vec<Predicted>, AdviceError> = configurations
        .par_iter()
        .map(|configuration| {
            let predicted = Predicted::of(configuration, need, &catalogue, effort);
            work.done();
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
            let choice = appraise(candidate, need, &predicted[of_it], errors[of_it]);
            work.done();
            choice
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
    /// Rates of the workload's loads without a link that has rules of its own.
    unlinked: Option<Vec<f64>>,
}

impl Predicted {
    fn of(
        configuration: &Configuration,
        need: &Need,
        catalogue: &Catalogue,
        effort: f64,
    ) -> Result<Self, AdviceError> {
        let system = catalogue.build("candidate", configuration)?;
        let redundant = system.shape.fault_tolerance() > 0;
        let mut loads = vec![sequential(false), sequential(true), mixed()];
        for load in &need.workload.loads {
            if !loads.contains(load) {
                loads.push(load.clone());
            }
        }
        let predict =
            |system: &System, state, load: &Workload| predict_roughly(system, state, load, SEED, effort);
        let all =
            |state| -> Vec<Prediction> { loads.iter().map(|load| predict(&system, state, load)).collect() };
        let normal = all(State::Normal);
        let (degraded, rebuilding) = match redundant {
            true => (all(State::Degraded), all(State::Rebuilding)),
            false => (Vec::new(), Vec::new()),
        };
        let unlinked = match &configuration.link {
            None => None,
            Some(_) => {
                let bare = Configuration { link: None, ..configuration.clone() };
                let system = catalogue.build("candidate", &bare)?;
                let rate = |load: &Workload| predict(&system, State::Normal, load).mb_per_s;
                Some(need.workload.loads.iter().map(rate).collect())
            }
        };
        Ok(Self { system, redundant, loads, normal, degraded, rebuilding, unlinked })
    }

    /// The prediction of the workload's first load.
    fn first<'a>(&self, of: &'a [Prediction], need: &Need) -> Option<&'a Prediction> {
        let first = need.workload.loads.first()?;
        of.get(self.loads.iter().position(|known| known == first)?)
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
        let linked: Vec<f64> = need.workload.loads.iter().map(rate).collect();
        let sum: f64 = linked.iter().map(|rate| rate.min(cap).ln()).sum();
        let workload = (sum / linked.len() as f64).exp();
        let uncapped = self.unlinked.clone().unwrap_or(linked);
        let rates = Rates {
            seq_write: rate(&sequential(false)).min(cap),
            seq_read: rate(&sequential(true)).min(cap),
            mixed: rate(&mixed()).min(cap),
            workload,
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
    // A drive is filled as far as it is used.
    let scale = candidate.drive_bytes as f64 / candidate.predicted_bytes.max(1) as f64;
    let rebuild_seconds = first.rebuild_seconds.filter(|_| redundant).map(|seconds| seconds * scale);
    let loaded = under_load.and_then(|under| under.rebuild_under_load_seconds).map(|seconds| seconds * scale);
    let loaded = loaded.or(rebuild_seconds);
    let found = risk(candidate, need, loaded)?;
    let loss = found.loss_probability_per_year;
    let by_drives = (found.events_per_1000.mean - found.latent_events_per_1000.mean).max(0.0) / 1000.0;
    let usable_bytes = candidate.usable_bytes;
    let cost = candidate.cost(need);
    let limited = need.link.as_ref().filter(|link| normal.workload >= 0.99 * link.mb_per_s);
    let members: Vec<Member> = candidate
        .parts
        .iter()
        .map(|kind| Member { count: kind.count, drive: kind.name.clone(), drive_bytes: kind.bytes })
        .collect();
    Ok(Choice {
        rank: 0,
        layout: candidate.spec.level.name().to_owned(),
        drives: candidate.drives,
        drive: match members.as_slice() {
            [one] => one.drive.clone(),
            several => several.iter().map(Member::text).collect::<Vec<_>>().join("+"),
        },
        members,
        columns: system.shape.width,
        groups: system.shape.groups,
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
        loss_probability_per_year: loss.mean,
        loss_ci95: loss.ci95,
        loss_by_drives_per_year: -(-by_drives / YEARS).exp_m1(),
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

/// Probability of data loss within a year, with a rebuild of this duration.
fn risk(candidate: &Candidate, need: &Need, loaded: Option<f64>) -> Result<Estimate, AdviceError> {
    let wishes = Wishes {
        years: YEARS,
        is_ssd: candidate.parts.iter().all(|kind| kind.is_ssd),
        bit_errors: need.bit_errors,
        varying_rows: candidate.varying_rows,
        restore: loaded.map(|seconds| Law::Fixed(seconds / 3600.0)),
        replacement: Some(Some(Law::Fixed(24.0))),
        spares: Spares::Dedicated(need.spares),
        drive_bytes: candidate.drive_bytes,
        ..Wishes::new(candidate.spec, candidate.drives)
    };
    let fault = |what: String| AdviceError::Wish { what, hint: "this is a fault of the program".to_owned() };
    let asked = wishes.question().map_err(|error| {
        fault(format!("the risk of {} cannot be estimated: {error}", candidate.spec.level))
    })?;
    let stop = Stop {
        precision: RISK_PRECISION,
        fine_precision: RISK_PRECISION,
        easy_drive_years: 0.0,
        most_trials: 100_000,
        threads: None,
    };
    let found = estimate(&asked.question, asked.bytes_per_group, need.seed, &stop, &mut |_, _| true);
    found.map_err(|error| fault(error.to_string()))
}
