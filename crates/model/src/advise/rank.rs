//! Order of the choices, their reasons, and dominated choices.
//!
//! Only choices that meet all requirements are ranked. Criteria follow one another: rate, then what
//! the work asks for. By each the best and all that are as good within its tolerance form a band,
//! which the next criterion orders; the rest forms the next bands. Where the work fills what there
//! is (backup, archive, media) or no capacity is asked for, more capacity counts, then price and
//! risk; else price or the number of drives. Of drives to buy whose prices are unknown, those that
//! hold what is wanted with less raw capacity count as cheaper.

use super::wanted::Need;
use super::{AdviceError, Choice, Excluded};
use crate::reliability::{chance_per_year, percent};

/// Ratio from which two rates differ: above it the model orders 97 of 100 published pairs
/// correctly.
pub(super) const APART: f64 = 1.15;
/// The same for work that needs room more than rate.
const APART_FOR_CAPACITY: f64 = 1.3;
/// Ratio from which two raw capacities differ, which stand for prices that are not known.
const RAW_APART: f64 = 1.15;
/// Ratio from which two capacities or prices differ: one drive in a group of twelve is not worth a
/// higher risk.
const ROOM_APART: f64 = 1.085;
/// Ratio from which two risks differ: twice the error of their estimates.
const RISK_APART: f64 = 1.4;
/// Risks below this are equal.
const NO_RISK: f64 = 1e-9;

/// Properties by which a choice is compared.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) choice: &'a Choice,
    pub(super) rate: f64,
}

/// A criterion: a figure, better the higher it is, and the ratio from which two differ.
#[derive(Clone, Copy)]
struct Criterion {
    figure: fn(&View<'_>) -> f64,
    apart: f64,
}

const RATE: Criterion = Criterion { figure: |view| view.rate, apart: APART };
const RATE_FOR_CAPACITY: Criterion = Criterion { apart: APART_FOR_CAPACITY, ..RATE };
const RAW: Criterion = Criterion { figure: |view| 1.0 / raw_bytes(view.choice), apart: RAW_APART };
const CAPACITY: Criterion = Criterion { figure: |view| view.choice.usable_bytes as f64, apart: ROOM_APART };
const PRICE: Criterion =
    Criterion { figure: |view| view.choice.cost.map_or(1.0, |cost| 1.0 / cost.max(1e-9)), apart: ROOM_APART };
const SPEND: Criterion = Criterion { figure: |view| 1.0 / spend(view.choice), apart: 1.0 };
const SAFETY: Criterion =
    Criterion { figure: |view| 1.0 / view.choice.loss_probability_per_year.max(NO_RISK), apart: RISK_APART };
const ROOM: Criterion = Criterion { apart: 1.0, ..CAPACITY };

/// Criteria in their order.
fn criteria(need: &Need) -> Vec<Criterion> {
    let rate = if need.workload.is_for_capacity() { RATE_FOR_CAPACITY } else { RATE };
    let mut criteria = vec![rate];
    if need.counts_raw_capacity() {
        criteria.push(RAW);
    }
    criteria.extend(match need.prefers_capacity() {
        true => [CAPACITY, PRICE, SAFETY, ROOM, SPEND],
        false => [SPEND, SAFETY, ROOM, PRICE, CAPACITY],
    });
    criteria
}

/// Capacity of all drives of the array.
fn raw_bytes(choice: &Choice) -> f64 {
    choice.members.iter().map(|member| member.count as f64 * member.drive_bytes as f64).sum()
}

/// Sorts the choices that meet all requirements and gives each its reason; the second list has the
/// others.
pub(super) fn ranked(
    mut choices: Vec<Choice>,
    need: &Need,
) -> Result<(Vec<Choice>, Vec<Choice>), AdviceError> {
    for choice in &mut choices {
        choice.fits = misfit(choice, need, need.risk_per_year).is_none();
    }
    contradiction(&choices, need)?;
    let (fitting, others): (Vec<Choice>, Vec<Choice>) = choices.into_iter().partition(|choice| choice.fits);
    let views = fitting.iter().map(|choice| View { choice, rate: choice.normal.workload });
    let mut sorted: Vec<Choice> = sorted(views.collect(), need).into_iter().cloned().collect();
    for (index, choice) in sorted.iter_mut().enumerate() {
        choice.rank = index + 1;
    }
    let all = sorted.clone();
    for choice in &mut sorted {
        let equals = all.iter().filter(|other| {
            other.rank != choice.rank && is_equal(other.normal.workload, choice.normal.workload)
        });
        choice.equal_to = equals.map(|other| other.rank).collect();
        let better = |other: &&Choice| other.rank < choice.rank && dominates(other, choice);
        choice.dominated_by = all.iter().find(better).map(|other| other.rank);
        choice.reason = reason(choice, &all, need);
    }
    Ok((sorted, others))
}

/// An appraised choice that misses a requirement.
pub(super) fn excluded(choice: &Choice, need: &Need) -> Excluded {
    Excluded {
        array: choice.name(),
        usable_bytes: choice.usable_bytes,
        loss_probability_per_year: Some(choice.loss_probability_per_year),
        why: misfit(choice, need, need.risk_per_year).unwrap_or_default(),
    }
}

fn is_equal(one: f64, other: f64) -> bool {
    one.max(other) <= APART * one.min(other)
}

/// Price, or the number of drives where there are no prices.
fn spend(choice: &Choice) -> f64 {
    let drives = choice.drives + choice.spares + choice.journal_drives + 2 * (choice.controllers - 1);
    choice.cost.unwrap_or(drives as f64)
}

/// Returns the choices in their order.
pub(super) fn sorted<'a>(views: Vec<View<'a>>, need: &Need) -> Vec<&'a Choice> {
    let mut order = Vec::with_capacity(views.len());
    in_bands(views, &criteria(need), &mut order);
    order
}

fn in_bands<'a>(mut left: Vec<View<'a>>, criteria: &[Criterion], order: &mut Vec<&'a Choice>) {
    let Some((first, others)) = criteria.split_first() else {
        order.extend(left.into_iter().map(|view| view.choice));
        return;
    };
    while !left.is_empty() {
        let best = left.iter().map(first.figure).fold(f64::NEG_INFINITY, f64::max);
        let is_as_good = |view: &View| (first.figure)(view) * first.apart >= best;
        let (band, rest) = left.into_iter().partition(is_as_good);
        in_bands(band, others, order);
        left = rest;
    }
}

/// True if one choice is better in some respect, and worse in none.
fn dominates(one: &Choice, other: &Choice) -> bool {
    let rates = (one.normal.workload, other.normal.workload);
    let losses = (one.loss_probability_per_year, other.loss_probability_per_year);
    let worse = rates.0 * APART < rates.1
        || one.usable_bytes < other.usable_bytes
        || losses.0 > RISK_APART * losses.1
        || spend(one) > spend(other);
    let better = rates.0 > APART * rates.1
        || one.usable_bytes > other.usable_bytes
        || RISK_APART * losses.0 < losses.1
        || spend(one) < spend(other);
    !worse && better
}

pub(super) fn too_small(bytes: u64, wanted: u64) -> String {
    format!("holds {} of the {} wanted", terabytes(bytes), terabytes(wanted))
}

pub(super) fn too_dear(cost: f64, budget: f64) -> String {
    format!("costs {cost:.0}, more than the budget of {budget:.0}")
}

/// Without redundancy most losses are single blocks: says how many are not.
fn parts_of_loss(choice: &Choice) -> String {
    match choice.rebuild_seconds {
        Some(_) => String::new(),
        None => format!(
            ", {} by a failed drive and the rest by single unreadable blocks",
            percent(choice.loss_by_drives_per_year)
        ),
    }
}

/// Returns the first requirement that a choice does not meet.
pub(super) fn misfit(choice: &Choice, need: &Need, risk: f64) -> Option<String> {
    if let Some(wanted) = need.capacity_bytes.filter(|wanted| choice.usable_bytes < *wanted) {
        return Some(too_small(choice.usable_bytes, wanted));
    }
    if choice.loss_probability_per_year > risk {
        return Some(format!(
            "loses data with {}{}, more than the {} accepted",
            chance_per_year(choice.loss_probability_per_year),
            parts_of_loss(choice),
            percent(risk)
        ));
    }
    if let (Some(budget), Some(cost)) = (need.exceeded_budget(choice.cost), choice.cost) {
        return Some(too_dear(cost, budget));
    }
    let left = choice.rebuilding.workload / choice.normal.workload.max(1e-9);
    match need.rebuild_noise {
        Some(least) if left < least => Some(format!(
            "keeps {:.0} % of its rate while a drive is rebuilt, {:.0} % are wanted",
            100.0 * left,
            100.0 * least
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
            "{} holds {} and loses data with {}",
            choice.name(),
            terabytes(choice.usable_bytes),
            chance_per_year(choice.loss_probability_per_year)
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
    let cheapest = candidates.min_by(|a, b| spend(a).total_cmp(&spend(b))).expect("there is one");
    let why = misfit(cheapest, need, need.risk_per_year).unwrap_or_default();
    Err(AdviceError::Contradiction {
        what: "meets all requirements".to_owned(),
        nearest: format!("nearest: {}, but it {why}", name(cheapest)),
    })
}

fn reason(choice: &Choice, all: &[Choice], need: &Need) -> String {
    let first = &all[0];
    let rate = choice.normal.workload;
    let what = &need.workload.name;
    let within = choice.error_percent;
    if choice.rank > 1 {
        if !is_equal(first.normal.workload, rate) {
            let share = 100.0 * rate / first.normal.workload.max(1e-9);
            let rate = format!("{share:.0} % of the {what} rate of choice 1");
            return match share > 100.0 {
                true => format!("{rate}, but {}", drawback(choice, first, need)),
                false => rate,
            };
        }
        return format!(
            "about as fast as choice 1 (within {within:.0} %), but {}",
            drawback(choice, first, need)
        );
    }
    let limit = format!("{what} at {rate:.0} MB/s, limited by {}", choice.bottleneck);
    let faster = all.iter().filter(|other| other.normal.workload > APART * rate);
    if let Some(fastest) = faster.max_by(|a, b| a.normal.workload.total_cmp(&b.normal.workload)) {
        return format!(
            "{limit}; choice {} is faster ({:.0} MB/s), but {}",
            fastest.rank,
            fastest.normal.workload,
            drawback(fastest, choice, need)
        );
    }
    let equals: Vec<&Choice> = all.iter().filter(|other| choice.equal_to.contains(&other.rank)).collect();
    match equals.len() {
        0 => format!("the fastest for {limit}"),
        1 => format!(
            "{limit}; one other choice is as fast (within {within:.0} %), but this one {}",
            merit(choice, &equals, need)
        ),
        count => format!(
            "{limit}; {count} other choices are as fast (within {within:.0} %), but this one {}",
            merit(choice, &equals, need)
        ),
    }
}

/// Advantage of the first choice over its equals.
fn merit(first: &Choice, equals: &[&Choice], need: &Need) -> String {
    let cheaper = |others: &[&Choice]| others.iter().all(|other| spend(first) < spend(other));
    let spent = if first.cost.is_some() { "costs the least" } else { "uses the fewest drives" };
    let takes_more = |other: &Choice| raw_bytes(other) > RAW_APART * raw_bytes(first);
    if need.counts_raw_capacity() && equals.iter().any(|other| takes_more(other)) {
        return format!("holds what is wanted on {} of drives", terabytes(raw_bytes(first) as u64));
    }
    if !need.prefers_capacity() {
        return match cheaper(equals) {
            true => spent.to_owned(),
            false => format!("{spent}, and of those with the same it loses data least often"),
        };
    }
    let room = |choice: &Choice| choice.usable_bytes as f64;
    let most = equals.iter().map(|other| room(other)).fold(room(first), f64::max);
    let near: Vec<&Choice> =
        equals.iter().copied().filter(|other| room(other) * ROOM_APART >= most).collect();
    let why = match () {
        () if near.is_empty() => return "holds the most".to_owned(),
        () if first.cost.is_some() && cheaper(&near) => spent,
        () if near.iter().all(|other| first.loss_probability_per_year <= other.loss_probability_per_year) => {
            "loses data least often"
        }
        () => "has the best of price, risk and room",
    };
    format!("{why} of those that hold about as much")
}

/// Drawback of a choice against the first, which is as fast.
fn drawback(choice: &Choice, first: &Choice, need: &Need) -> String {
    let losses = (choice.loss_probability_per_year, first.loss_probability_per_year);
    match (choice.cost, first.cost) {
        _ if (choice.usable_bytes as f64) * ROOM_APART < first.usable_bytes as f64 => {
            format!("holds {} instead of {}", terabytes(choice.usable_bytes), terabytes(first.usable_bytes))
        }
        (Some(cost), Some(of_first)) if cost > of_first => {
            format!("costs {cost:.0} instead of {of_first:.0}")
        }
        (None, None) if need.counts_raw_capacity() && raw_bytes(choice) > RAW_APART * raw_bytes(first) => {
            format!(
                "takes drives of {} in all instead of {}",
                terabytes(raw_bytes(choice) as u64),
                terabytes(raw_bytes(first) as u64)
            )
        }
        (None, None) if spend(choice) > spend(first) => "uses more drives".to_owned(),
        _ if losses.0 > losses.1 => {
            format!("loses data with {} instead of {}", chance_per_year(losses.0), percent(losses.1))
        }
        _ if choice.usable_bytes < first.usable_bytes => {
            format!("holds {} instead of {}", terabytes(choice.usable_bytes), terabytes(first.usable_bytes))
        }
        _ => "has no advantage".to_owned(),
    }
}

pub(super) fn terabytes(bytes: u64) -> String {
    format!("{:.1} TB", bytes as f64 / 1e12)
}
