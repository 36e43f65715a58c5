//! Requirement changes that would change the first choice: each answer is varied in turn. The
//! result gives the sensitivity of the advice and the next question worth asking.

use super::Choice;
use super::rank::{View, misfit, percent, sorted, terabytes};
use super::wanted::{Need, links};

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
    fn winner<'c>(&self, choices: &'c [Choice]) -> &'c Choice {
        let view = |choice: &'c Choice| View {
            choice,
            rate: (self.rate)(choice),
            fits: misfit(choice, &self.need, self.need.risk_per_year).is_none(),
        };
        sorted(choices.iter().map(view).collect())[0]
    }
}

fn variations<'a>(choices: &[Choice], need: &'a Need) -> Vec<Variation<'a>> {
    let mut all = Vec::new();
    let now = need.link.as_ref().map_or(f64::INFINITY, |link| link.mb_per_s);
    for link in links().filter(|link| link.mb_per_s != now) {
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
        all.push(Variation { matter: Matter::Workload, with, rate: Box::new(rate), need: need.clone() });
    }
    let workload = |choice: &Choice| choice.normal.workload;
    for factor in [0.1, 0.01, 10.0, 100.0] {
        let risk_per_year = (need.risk_per_year * factor).min(1.0);
        if risk_per_year == need.risk_per_year {
            continue;
        }
        let with = format!("where {} a year is accepted", percent(risk_per_year));
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

/// Returns the changes that would change the first choice, in words; of neighbouring values with
/// the same winner only the first.
pub(super) fn sensitivity(choices: &[Choice], need: &Need) -> Vec<String> {
    let Some(first) = choices.first() else { return Vec::new() };
    let mut said = Vec::new();
    let mut before = (Matter::Workload, first.rank);
    for variation in variations(choices, need) {
        let winner = variation.winner(choices);
        let this = (variation.matter, winner.rank);
        if winner.rank != first.rank && (this != before || variation.matter != Matter::Capacity) {
            said.push(format!("{} {} wins", variation.with, winner.name()));
        }
        before = this;
    }
    said
}

/// Returns the unsettled requirement that can change the first choice in most ways, with the
/// results of its possible answers; `None` if none can change it.
pub fn what_matters(choices: &[Choice], need: &Need, settled: &[Matter]) -> Option<(Matter, Vec<String>)> {
    let first = choices.first()?;
    let all = variations(choices, need);
    let changes = |matter: Matter| {
        let mut winners = Vec::new();
        let mut said = Vec::new();
        for variation in all.iter().filter(|variation| variation.matter == matter) {
            let winner = variation.winner(choices);
            if winner.rank != first.rank && !winners.contains(&winner.rank) {
                winners.push(winner.rank);
                said.push(format!("{} {}", variation.with, winner.name()));
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
