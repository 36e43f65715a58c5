//! The studies' findings that a prediction can show: each holds, does not hold, or cannot be
//! modelled and why.

mod controllers;
mod disks;
mod enclosure;
mod missing;
mod solid_state;

use serde::Serialize;

use crate::predict::{Prediction, State, Workload, predict};
use crate::system::{Catalogue, Configuration, Over, System};

/// Verdict of the predictions on a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The predictions show the finding.
    Holds,
    /// The predictions contradict the finding.
    DoesNotHold,
    /// The predictions do not cover the finding.
    CannotBeModelled,
}

/// A finding and what the predictions say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Its id in `studies/findings.csv`.
    pub id: String,
    /// Verdict on the finding.
    pub verdict: Verdict,
    /// The figures, or the reason.
    pub why: String,
    /// The cause that the model lacks, where the finding does not hold.
    pub missing_cause: Option<&'static str>,
}

const FINDINGS: &str = include_str!("../../../../studies/findings.csv");
const MIB: u64 = 1 << 20;

/// Predictions by short names.
struct Look<'a>(&'a Catalogue);

/// A load of a study, in words.
#[derive(Clone, Copy)]
struct Load {
    read: bool,
    random: bool,
    kib: u64,
    depth: usize,
    workers: usize,
    mib: u64,
}

const fn seq(read: bool, depth: usize) -> Load {
    Load { read, random: false, kib: 1024, depth, workers: 1, mib: 4096 }
}

const fn rnd(read: bool, depth: usize) -> Load {
    Load { read, random: true, kib: 4, depth, workers: 1, mib: 4096 }
}

impl Load {
    const fn kib(self, kib: u64) -> Self {
        Self { kib, ..self }
    }

    const fn mib(self, mib: u64) -> Self {
        Self { mib, ..self }
    }

    const fn workers(self, workers: usize) -> Self {
        Self { workers, ..self }
    }
}

impl Look<'_> {
    fn system(&self, name: &str) -> System {
        self.0.system(name).expect("the findings name systems of the catalogue")
    }

    fn rate(&self, name: &str, load: Load) -> f64 {
        self.predict(name, load).mb_per_s
    }

    fn mean_us(&self, name: &str, load: Load) -> f64 {
        self.predict(name, load).latency_us.mean
    }

    fn predict(&self, name: &str, load: Load) -> Prediction {
        let span = (load.mib > 0).then_some(load.mib * MIB);
        let simple = Workload::simple(load.read, load.random, load.kib * 1024, load.depth);
        let repeats = name.starts_with("000");
        let workload = Workload { span_bytes: span, workers: load.workers, repeats, ..simple };
        predict(&self.system(name), State::Normal, &workload)
    }

    fn ratio(&self, one: &str, other: &str, load: Load) -> f64 {
        self.rate(one, load) / self.rate(other, load)
    }

    /// One of study 004's loads in a state.
    fn four(&self, name: &str, load: &str, state: State) -> f64 {
        let load = super::questions::load_004(load).expect("the study's loads have names");
        predict(&self.system(name), state, &load).mb_per_s
    }

    fn kept(&self, name: &str, load: &str, state: State) -> f64 {
        self.four(name, load, state) / self.four(name, load, State::Normal)
    }

    fn rebuild_hours(&self, name: &str) -> f64 {
        let load = Workload::simple(true, true, 4096, 1);
        let prediction = predict(&self.system(name), State::Normal, &load);
        prediction.rebuild_seconds.unwrap_or(0.0) / 3600.0
    }

    /// Random writes of X25-E sets over one controller or two.
    fn over_two(&self, controllers: usize) -> f64 {
        let configuration = Configuration {
            drives: "4xx25e".into(),
            layout: "raid0".into(),
            columns: None,
            interleave_kib: Some(64),
            groups: None,
            controller: "adaptec-5085".into(),
            controllers,
            over: Over::SimpleVolumes,
            file_system: true,
            link: None,
            journal: None,
            filled: None,
        };
        let system = self.0.build("two controllers", &configuration).expect("it is possible");
        predict(&system, State::Normal, &Workload::simple(true, true, 4096, 32)).iops
    }
}

type Check = fn(&Look) -> (bool, String);

fn within(value: f64, low: f64, high: f64, what: &str) -> (bool, String) {
    ((low..=high).contains(&value), format!("{what}: {value:.2}"))
}

fn all(checks: &[(bool, String)]) -> (bool, String) {
    let texts: Vec<&str> = checks.iter().map(|(_, text)| text.as_str()).collect();
    (checks.iter().all(|(holds, _)| *holds), texts.join("; "))
}

/// The checks of all studies.
fn check(id: &str) -> Option<Check> {
    let studies = [disks::CHECKS, enclosure::CHECKS, solid_state::CHECKS, controllers::CHECKS];
    studies.into_iter().flatten().find(|(name, _)| *name == id).map(|(_, check)| *check)
}

/// Measured findings that no model of drives and arrays says anything about.
const NOT_MODELLED: &[(&str, &str)] = &[
    ("F001-08", "it is a misprint"),
    ("F001-15", "it is how the tool counts; the predicted rates are counted so"),
    ("F002-11", "what detecting streams costs a drive is not modelled: mixed loads are weighted by time"),
    ("F003-05", "it is a default of the software, and stands in the catalogue"),
    ("F003-08", "it is a default of the software"),
    ("F004-06", "it is arithmetic: `advise` prints usable capacity"),
];

/// Every finding of `studies/findings.csv`, judged.
pub fn findings(catalogue: &Catalogue) -> Vec<Finding> {
    use rayon::prelude::*;
    let lines: Vec<&str> = FINDINGS.lines().skip(1).filter(|line| !line.trim().is_empty()).collect();
    lines.par_iter().map(|line| judge(catalogue, line)).collect()
}

fn judge(catalogue: &Catalogue, line: &str) -> Finding {
    let fields = crate::studies::fields(line);
    let field = |index: usize| fields.get(index).map_or("", String::as_str);
    let (id, topic, evidence, support) = (field(1), field(2), field(5), field(6));
    if let Some(check) = check(id) {
        let (holds, why) = check(&Look(catalogue));
        let verdict = if holds { Verdict::Holds } else { Verdict::DoesNotHold };
        let missing = missing::CAUSES.iter().find(|(name, _)| !holds && *name == id);
        return Finding { id: id.into(), verdict, why, missing_cause: missing.map(|(_, cause)| *cause) };
    }
    let said = NOT_MODELLED.iter().find(|(name, _)| *name == id).map(|(_, why)| *why);
    let why = match (support, topic) {
        _ if said.is_some() => said.unwrap_or_default().to_owned(),
        ("cited", _) => "it is about the work of others, whose systems are not described".to_owned(),
        ("stated", _) => "it is advice or description, not a figure".to_owned(),
        (_, "method") => "it is about how to measure".to_owned(),
        (_, "summary" | "anomaly") => {
            "it is about the print, or about what the study cannot explain itself".to_owned()
        }
        _ if field(0) == "003" || evidence.contains("no numbers") => {
            "the study shows curves without numbers".to_owned()
        }
        _ => format!("nothing says why: see the rows of {evidence}"),
    };
    Finding { id: id.into(), verdict: Verdict::CannotBeModelled, why, missing_cause: None }
}
