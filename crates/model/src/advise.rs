//! Layout advice: candidates from drives and requirements, predicted, their risk estimated, ranked
//! with a reason each.
//!
//! `docs/advice.md` has the rules. No answer is built in: the order follows from predictions
//! ([`crate::predict`]), risks ([`crate::reliability`]), costs and the model's error.
//!
//! Expected faults: unknown names, and requirements that no layout meets; the error names the
//! nearest match.

mod appraise;
mod candidates;
mod commands;
mod drives;
mod rank;
mod report;
mod wanted;
mod what_if;
mod work;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use crate::system::CatalogueError;
use candidates::Candidate;

pub use commands::{Caveats, Commands};
pub(crate) use drives::catalogue as catalogue_with;
pub use drives::{Kind, parse_count, parse_drives};
pub use report::html;
pub use wanted::{Link, Need, Use, parse_link, parse_use};
pub use what_if::{Matter, what_matters};

/// Rates of an array in one state, in MB/s.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// Sequential writes.
    pub seq_write: f64,
    /// Sequential reads.
    pub seq_read: f64,
    /// Random requests of 4 KiB to 2 MiB, half of them reads.
    pub mixed: f64,
    /// Rate of the requested workload.
    pub workload: f64,
}

/// One way to use the drives.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// From 1.
    pub rank: usize,
    /// By its name.
    pub layout: String,
    /// Drives, without spares.
    pub drives: usize,
    /// Name of the drive; of several kinds each with its number.
    pub drive: String,
    /// Drives of each kind, the largest first.
    pub members: Vec<Member>,
    /// Members of a row.
    pub columns: usize,
    /// Groups of RAID 50 and 60.
    pub groups: usize,
    /// Bytes on one drive before the next one follows.
    pub interleave_bytes: u64,
    /// Spare drives.
    pub spares: usize,
    /// Solid-state drives that hold the journal.
    pub journal_drives: usize,
    /// Controllers that share the drives.
    pub controllers: usize,
    /// For data.
    pub usable_bytes: u64,
    /// All drives there.
    pub normal: Rates,
    /// Rates of the workload's loads, without the link's limit.
    #[serde(skip)]
    pub(crate) uncapped: Vec<f64>,
    /// Rates with one drive missing.
    pub degraded: Rates,
    /// Rates while its replacement is rebuilt.
    pub rebuilding: Rates,
    /// Rebuild time without load; `None` without redundancy.
    pub rebuild_seconds: Option<f64>,
    /// Rebuild time under the workload.
    pub rebuild_under_load_seconds: Option<f64>,
    /// Probability of data loss within a year.
    pub loss_probability_per_year: f64,
    /// 95 % confidence interval of the loss probability.
    pub loss_ci95: [f64; 2],
    /// Part of it by failed drives alone, without single unreadable blocks.
    pub loss_by_drives_per_year: f64,
    /// Component that limits the workload.
    pub bottleneck: String,
    /// Reason for the rank.
    pub reason: String,
    /// Difference below which two rates are called equal, in percent.
    pub error_percent: f64,
    /// Median prediction error of such rates in published studies.
    pub rate_median_error_percent: f64,
    /// Ninetieth percentile of that error.
    pub rate_p90_error_percent: f64,
    /// Rank of a choice that is better in some respect and worse in none.
    pub dominated_by: Option<usize>,
    /// Ranks of choices whose workload rate is within the model's error of this one's.
    pub equal_to: Vec<usize>,
    /// Price of all drives, where prices were given.
    pub cost: Option<f64>,
    /// Price per usable TB.
    pub cost_per_tb: Option<f64>,
    /// True if it meets the capacity, risk and budget requirements.
    pub fits: bool,
    /// Commands that build it.
    pub commands: Commands,
    /// Caveats of the commands.
    pub caveats: Caveats,
}

/// Drives of one kind in an array.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Member {
    /// Number of drives.
    pub count: usize,
    /// Name of the drive.
    pub drive: String,
    /// Capacity of one drive.
    pub drive_bytes: u64,
}

impl Member {
    fn text(&self) -> String {
        format!("{}x{}", self.count, self.drive)
    }
}

impl Choice {
    /// Description of the layout.
    pub fn name(&self) -> String {
        match self.members.as_slice() {
            [one] => self.described(&format!("{} of {} {}", self.layout, one.count, one.drive)),
            _ => self.described(&format!("{} of {}", self.layout, self.drive)),
        }
    }

    /// Description for a table: `raid60 60x20tb-hdd in 6 groups`.
    pub fn short_name(&self) -> String {
        let members: Vec<String> = self.members.iter().map(Member::text).collect();
        self.described(&format!("{} {}", self.layout, members.join("+")))
    }

    fn described(&self, array: &str) -> String {
        let mut name = array.to_owned();
        if self.columns < self.drives {
            name += &format!(" in {} columns", self.columns);
        }
        if self.groups > 1 {
            name += &format!(" in {} groups", self.groups);
        }
        if self.spares > 0 {
            name += &format!(", {} spare", self.spares);
        }
        if self.journal_drives > 0 {
            name += " with a journal";
        }
        if self.controllers > 1 {
            name += &format!(" on {} controllers", self.controllers);
        }
        name
    }
}

/// An array that misses a requirement.
#[derive(Clone, Debug, Serialize)]
pub struct Excluded {
    /// Description of the array.
    pub array: String,
    /// For data.
    pub usable_bytes: u64,
    /// Probability of data loss within a year; `None` where it misses another requirement already.
    pub loss_probability_per_year: Option<f64>,
    /// Requirement that it misses.
    pub why: String,
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// Values that the caller did not give.
    pub assumptions: Vec<String>,
    /// Arrays that meet all requirements, the best first.
    pub choices: Vec<Choice>,
    /// Arrays that miss one.
    pub excluded: Vec<Excluded>,
    /// Changes of the requirements that would change the first choice.
    pub sensitivity: Vec<String>,
    /// Appraised arrays that miss a requirement, for other requirements.
    #[serde(skip)]
    pub(crate) others: Vec<Choice>,
}

/// Reason why there is no advice.
#[derive(Debug, thiserror::Error)]
pub enum AdviceError {
    /// An unknown name, or parts that do not match.
    #[error("{0}")]
    Catalogue(#[from] CatalogueError),
    /// An invalid requirement.
    #[error("{what}")]
    Wish {
        /// The unknown or invalid value, and why.
        what: String,
        /// Valid values.
        hint: String,
    },
    /// No choice meets the requirements.
    #[error("no layout of these drives {what}")]
    Contradiction {
        /// The requirement that cannot be met.
        what: String,
        /// The nearest choice.
        nearest: String,
    },
}

impl AdviceError {
    /// Suggested remedy.
    pub fn hint(&self) -> String {
        match self {
            Self::Catalogue(error) => error.hint(),
            Self::Wish { hint, .. } => hint.clone(),
            Self::Contradiction { nearest, .. } => nearest.clone(),
        }
    }
}

/// Candidates without enough room that are appraised to find the nearest.
const NEAREST: usize = 12;

/// Ranks the layouts that the drives allow. `progress` receives the work done and the total.
pub fn advise(need: &Need, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Advice, AdviceError> {
    let mut assumptions = Vec::new();
    let candidates = candidates::of(need, &mut assumptions)?;
    let work = work::Work::new(progress);
    // Candidates too small or too dear need no prediction, unless nothing else is left.
    let (possible, mut rest): (Vec<&Candidate>, Vec<&Candidate>) =
        candidates.iter().partition(|candidate| shortfall(candidate, need).is_none());
    let mut appraised = appraise::all(&possible, need, &work)?;
    rest.sort_by_key(|candidate| Reverse(candidate.usable_bytes));
    if !appraised.iter().any(|choice| rank::misfit(choice, need, need.risk_per_year).is_none()) {
        let nearest: Vec<&Candidate> = rest.iter().copied().take(NEAREST).collect();
        appraised.extend(appraise::all(&nearest, need, &work)?);
    }
    let (mut choices, others) = rank::ranked(appraised, need)?;
    assumptions.extend(appraise::assumptions(need));
    let mut excluded: Vec<Excluded> = others.iter().map(|choice| rank::excluded(choice, need)).collect();
    excluded.extend(rest.iter().filter_map(|candidate| {
        let why = shortfall(candidate, need)?;
        let array = candidate.name();
        let usable_bytes = candidate.usable_bytes;
        Some(Excluded { array, usable_bytes, loss_probability_per_year: None, why })
    }));
    let sensitivity = what_if::sensitivity(&choices, &others, need);
    for choice in &mut choices {
        (choice.commands, choice.caveats) = commands::of(choice, need);
    }
    Ok(Advice { assumptions, choices, excluded, sensitivity, others })
}

/// Requirement that a candidate misses whatever its rates and risk are.
fn shortfall(candidate: &Candidate, need: &Need) -> Option<String> {
    let cost = candidate.cost(need);
    if let (Some(budget), Some(cost)) = (need.exceeded_budget(cost), cost) {
        return Some(rank::too_dear(cost, budget));
    }
    let wanted = need.capacity_bytes.filter(|wanted| candidate.usable_bytes < *wanted)?;
    Some(rank::too_small(candidate.usable_bytes, wanted))
}

/// Names and prices of drives, as given.
pub type Prices = BTreeMap<String, f64>;
