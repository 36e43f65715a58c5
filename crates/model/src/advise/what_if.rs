//! Requirement changes that would change the first choice: each answer is varied in turn. The
//! result gives the sensitivity of the advice and the next question worth asking.

use super::rank::{View, misfit, sorted, terabytes};
use super::wanted::{Need, links, parse_use};
use super::{Advice, Choice};
use crate::reliability::chance_per_year;

/// A requirement that the advice depends on, and that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matter {
    /// Purpose of the array.
    Workload,
    /// Usable bytes.
    Capacity,
    /// The way to the client.
    Link,
    /// Maximum loss probability.
    Risk,
}

type Rate = fn(&Choice) -> f64;

/// One answer, varied.
struct Variation<'a> {
    matter: Matter,
    /// As in "with a 10gbe link".
    with: String,
    rate: Box<dyn Fn(&Choice) -> f64 + 'a>,
    need: Need,
}

impl Variation<'_> {
    /// The first of the choices that meet the varied requirements; `None` if there is none.
    fn winner<'c>(&self, choices: &[&'c Choice]) -> Option<&'c Choice> {
        let fits = |choice: &&&Choice| misfit(choice, &self.need, self.need.risk_per_year).is_none();
        let view = |choice: &&'c Choice| View { choice, rate: (self.rate)(choice) };
        sorted(choices.iter().filter(fits).map(view).collect(), &self.need).first().copied()
    }
}

fn variations<'a>(choices: &[&Choice], need: &'a Need) -> Vec<Variation<'a>> {
    let mut all = Vec::new();
    let now = need.link.as_ref().map_or(f64::INFINITY, |link| link.mb_per_s);
    // Random requests are another matter behind USB, and were not predicted there.
    let streams = need.workload.loads.iter().all(|load| load.random_share == 0.0);
    for link in links().filter(|link| link.mb_per_s != now && (streams || !link.is_usb())) {
        let rate = move |choice: &Choice| {
            let loads = &choice.uncapped;
            let sum: f64 = loads.iter().map(|rate| rate.min(link.mb_per_s).max(1e-9).ln()).sum();
            (sum / loads.len() as f64).exp()
        };
        let with = format!("with a {} link", link.name);
        all.push(Variation { matter: Matter::Link, with, rate: Box::new(rate), need: need.clone() });
    }
    let works: [(&str, Rate); 4] = [
        ("sequential", |choice| (choice.normal.seq_read * choice.normal.seq_write).sqrt()),
        ("mixed", |choice| choice.normal.mixed),
        ("backup", |choice| choice.normal.seq_write),
        ("archive", |choice| choice.normal.seq_read),
    ];
    for (name, rate) in works.into_iter().filter(|(name, _)| *name != need.workload.name) {
        let with = format!("for {name} work");
        let workload = parse_use(name).expect("a word of its own");
        let need = Need { workload, ..need.clone() };
        all.push(Variation { matter: Matter::Workload, with, rate: Box::new(rate), need });
    }
    let workload = |choice: &Choice| choice.normal.workload;
    for factor in [0.1, 0.01, 10.0, 100.0] {
        let risk_per_year = (need.risk_per_year * factor).min(1.0);
        if risk_per_year == need.risk_per_year {
            continue;
        }
        let with = format!("where {} is accepted", chance_per_year(risk_per_year));
        let need = Need { risk_per_year, ..need.clone() };
        all.push(Variation { matter: Matter::Risk, with, rate: Box::new(workload), need });
    }
    if need.capacity_bytes.is_none() {
        let mut sizes: Vec<u64> =
            choices.iter().filter(|choice| choice.fits).map(|choice| choice.usable_bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        for bytes in sizes {
            let with = format!("where {} are wanted", terabytes(bytes));
            let need = Need { capacity_bytes: Some(bytes), ..need.clone() };
            all.push(Variation { matter: Matter::Capacity, with, rate: Box::new(workload), need });
        }
    }
    all
}

/// Returns the changes that would change the first choice, in words; of changes of one kind with
/// the same winner only the first.
pub(super) fn sensitivity(choices: &[Choice], others: &[Choice], need: &Need) -> Vec<String> {
    let Some(first) = choices.first() else { return Vec::new() };
    let all: Vec<&Choice> = choices.iter().chain(others).collect();
    let mut said = Vec::new();
    let mut known: Vec<(Matter, Option<String>)> = Vec::new();
    for variation in variations(&all, need) {
        let winner = variation.winner(&all).map(Choice::name);
        let this = (variation.matter, winner.clone());
        if winner.as_ref() == Some(&first.name()) || known.contains(&this) {
            continue;
        }
        known.push(this);
        said.push(match winner {
            Some(winner) => format!("{} {winner} wins", variation.with),
            None => format!("{} no layout is left", variation.with),
        });
    }
    said
}

/// Returns the unsettled requirement that can change the first choice in most ways, with the
/// results of its possible answers; `None` if none can change it.
pub fn what_matters(advice: &Advice, need: &Need, settled: &[Matter]) -> Option<(Matter, Vec<String>)> {
    let first = advice.choices.first()?.name();
    let choices: Vec<&Choice> = advice.choices.iter().chain(&advice.others).collect();
    let all = variations(&choices, need);
    let changes = |matter: Matter| {
        let mut winners = Vec::new();
        let mut said = Vec::new();
        for variation in all.iter().filter(|variation| variation.matter == matter) {
            let Some(winner) = variation.winner(&choices).map(Choice::name) else { continue };
            if winner != first && !winners.contains(&winner) {
                said.push(format!("{} {winner}", variation.with));
                winners.push(winner);
            }
        }
        said
    };
    [Matter::Workload, Matter::Capacity, Matter::Link, Matter::Risk]
        .into_iter()
        .filter(|matter| !settled.contains(matter))
        .map(|matter| (matter, changes(matter)))
        .filter(|(_, changes)| !changes.is_empty())
        // The first wins a tie.
        .rev()
        .max_by_key(|(_, changes)| changes.len())
}
