//! Order of the choices, their reasons, and dominated choices.
//!
//! Rates that are nearer to each other than [`APART`] are called equal. Choices that meet the
//! requirements come first. The fastest of them and its equals form a band: within it the cheaper
//! comes first (fewer drives where there are no prices), then the one that loses data less often,
//! then the larger. The remaining choices form the next bands.

use std::cmp::Ordering;

use super::wanted::Need;
use super::{AdviceError, Choice};

/// Ratio from which two rates differ: above it the model orders 97 of 100 published pairs
/// correctly.
pub(super) const APART: f64 = 1.15;

/// Properties by which a choice is compared.
pub(super) struct View<'a> {
    pub(super) choice: &'a Choice,
    pub(super) rate: f64,
    pub(super) fits: bool,
}

/// Sorts the choices and gives each its reason.
pub(super) fn ranked(mut choices: Vec<Choice>, need: &Need) -> Result<Vec<Choice>, AdviceError> {
    for choice in &mut choices {
        choice.fits = misfit(choice, need, need.risk_per_year).is_none();
    }
    contradiction(&choices, need)?;
    let views = choices.iter().map(|choice| View { choice, rate: choice.normal.workload, fits: choice.fits });
    let order = sorted(views.collect());
    let mut sorted: Vec<Choice> = order.into_iter().cloned().collect();
    for (index, choice) in sorted.iter_mut().enumerate() {
        choice.rank = index + 1;
    }
    let all = sorted.clone();
    for choice in &mut sorted {
        choice.equal_to = all
            .iter()
            .filter(|other| {
                other.rank != choice.rank && is_equal(other.normal.workload, choice.normal.workload)
            })
            .map(|other| other.rank)
            .collect();
        let better = |other: &&Choice| {
            other.rank < choice.rank && other.fits >= choice.fits && dominates(other, choice)
        };
        choice.dominated_by = all.iter().find(better).map(|other| other.rank);
        choice.reason = reason(choice, &all, need);
    }
    Ok(sorted)
}

fn is_equal(one: f64, other: f64) -> bool {
    one.max(other) <= APART * one.min(other)
}

fn price(choice: &Choice) -> f64 {
    let drives = choice.drives + choice.spares + choice.journal_drives + 2 * (choice.controllers - 1);
    choice.cost.unwrap_or(drives as f64)
}

/// Bands of equals, the fastest first; choices that fit before those that do not.
pub(super) fn sorted(mut left: Vec<View<'_>>) -> Vec<&Choice> {
    let mut order = Vec::with_capacity(left.len());
    left.sort_by(|a, b| b.fits.cmp(&a.fits).then(b.rate.total_cmp(&a.rate)));
    while let Some(first) = left.first() {
        let (fits, rate) = (first.fits, first.rate);
        let in_band = |view: &View| view.fits == fits && view.rate * APART >= rate;
        let (mut band, rest): (Vec<View>, Vec<View>) = left.into_iter().partition(in_band);
        band.sort_by(|a, b| within_band(a.choice, b.choice));
        order.extend(band.into_iter().map(|view| view.choice));
        left = rest;
    }
    order
}

fn within_band(a: &Choice, b: &Choice) -> Ordering {
    price(a)
        .total_cmp(&price(b))
        .then(a.loss_probability_per_year.total_cmp(&b.loss_probability_per_year))
        .then(b.usable_bytes.cmp(&a.usable_bytes))
}

/// True if one choice is better in some respect, and worse in none.
fn dominates(one: &Choice, other: &Choice) -> bool {
    let rates = (one.normal.workload, other.normal.workload);
    let losses = (one.loss_probability_per_year, other.loss_probability_per_year);
    let worse = rates.0 * APART < rates.1
        || one.usable_bytes < other.usable_bytes
        || losses.0 > 1.2 * losses.1
        || price(one) > price(other);
    let better = rates.0 > APART * rates.1
        || one.usable_bytes > other.usable_bytes
        || 1.2 * losses.0 < losses.1
        || price(one) < price(other);
    !worse && better
}

/// Returns the first requirement that a choice does not meet.
pub(super) fn misfit(choice: &Choice, need: &Need, risk: f64) -> Option<String> {
    if let Some(wanted) = need.capacity_bytes.filter(|wanted| choice.usable_bytes < *wanted) {
        return Some(format!("holds {} of the {} wanted", terabytes(choice.usable_bytes), terabytes(wanted)));
    }
    if choice.loss_probability_per_year > risk {
        return Some(format!(
            "loses data with {} a year, more than the {} accepted",
            percent(choice.loss_probability_per_year),
            percent(risk)
        ));
    }
    if let (Some(cost), Some(budget)) = (choice.cost, need.budget)
        && cost > budget
    {
        return Some(format!("costs {cost:.0}, more than the budget of {budget:.0}"));
    }
    let left = choice.rebuilding.workload / choice.normal.workload.max(1e-9);
    match need.rebuild_noise {
        Some(least) if left < least => Some(format!(
            "keeps {} of its rate while a drive is rebuilt, {} are wanted",
            percent(left),
            percent(least)
        )),
        _ => None,
    }
}

/// Fails if no choice fits, with the requirement that cannot be met and the nearest choice.
fn contradiction(choices: &[Choice], need: &Need) -> Result<(), AdviceError> {
    if choices.iter().any(|choice| choice.fits) {
        return Ok(());
    }
    let largest =
        |of: &dyn Fn(&&Choice) -> bool| choices.iter().filter(of).max_by_key(|choice| choice.usable_bytes);
    let safe = |choice: &&Choice| choice.loss_probability_per_year <= need.risk_per_year;
    let enough = |choice: &&Choice| need.capacity_bytes.is_none_or(|wanted| choice.usable_bytes >= wanted);
    let name = |choice: &Choice| {
        format!(
            "{} of {} {} holds {} and loses data with {} a year",
            choice.layout,
            choice.drives,
            choice.drive,
            terabytes(choice.usable_bytes),
            percent(choice.loss_probability_per_year)
        )
    };
    let wanted = need.capacity_bytes.map_or_else(String::new, |bytes| format!("holds {}", terabytes(bytes)));
    if !choices.iter().any(|choice| enough(&choice)) {
        let nearest =
            [largest(&safe), largest(&|_| true)].into_iter().flatten().map(name).collect::<Vec<_>>();
        let mut nearest = nearest;
        nearest.dedup();
        return Err(AdviceError::Contradiction {
            what: wanted,
            nearest: format!("nearest: {}", nearest.join("; ")),
        });
    }
    if !choices.iter().any(|choice| enough(&choice) && safe(&choice)) {
        let by_risk =
            |a: &&Choice, b: &&Choice| a.loss_probability_per_year.total_cmp(&b.loss_probability_per_year);
        let safest = choices.iter().filter(enough).min_by(by_risk);
        let nearest: Vec<String> = [safest, largest(&safe)].into_iter().flatten().map(name).collect();
        let and = if wanted.is_empty() { String::new() } else { format!("{wanted} and ") };
        return Err(AdviceError::Contradiction {
            what: format!("{and}loses data with {} a year or less", percent(need.risk_per_year)),
            nearest: format!("nearest: {}", nearest.join("; ")),
        });
    }
    let candidates = choices.iter().filter(|choice| enough(choice) && safe(choice));
    let cheapest = candidates.min_by(|a, b| price(a).total_cmp(&price(b))).expect("there is one");
    let why = misfit(cheapest, need, need.risk_per_year).unwrap_or_default();
    Err(AdviceError::Contradiction {
        what: "meets all requirements".to_owned(),
        nearest: format!("nearest: {}, but it {why}", name(cheapest)),
    })
}

fn reason(choice: &Choice, all: &[Choice], need: &Need) -> String {
    if let Some(why) = misfit(choice, need, need.risk_per_year) {
        return format!("it {why}");
    }
    let first = &all[0];
    let rate = choice.normal.workload;
    let what = &need.workload.name;
    if choice.rank > 1 {
        let slower = first.normal.workload / rate.max(1e-9);
        if !is_equal(first.normal.workload, rate) {
            return format!("{:.0} % of the {what} rate of {} (rank 1)", 100.0 / slower, first.layout);
        }
        let why = match () {
            () if price(choice) > price(first) => "takes more drives or money",
            () if choice.loss_probability_per_year > first.loss_probability_per_year => {
                "loses data more often"
            }
            () => "holds less",
        };
        return format!("as fast as rank 1 within the model's error, but it {why}");
    }
    let equals = all.iter().filter(|other| other.fits && choice.equal_to.contains(&other.rank)).count();
    let limit = format!("{what} at {rate:.0} MB/s, limited by {}", choice.bottleneck);
    match equals {
        0 => format!("the fastest for {limit}"),
        _ => {
            let cheaper =
                all.iter().any(|other| choice.equal_to.contains(&other.rank) && price(other) > price(choice));
            let why = if cheaper { "takes the fewest drives" } else { "loses data least often" };
            format!("{limit}: as fast as {equals} others, and of these it {why}")
        }
    }
}

pub(super) fn terabytes(bytes: u64) -> String {
    format!("{:.1} TB", bytes as f64 / 1e12)
}

pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        10.0.. => format!("{percent:.0} %"),
        0.01..10.0 => format!("{percent:.2} %"),
        0.0 => "0 %".to_owned(),
        _ => format!("{percent:.0e} %"),
    }
}
