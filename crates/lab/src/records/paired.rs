//! Comparison of two runs of the store: figures of the same name, all of them together.
//!
//! Expected fault: runs of different methods, which have no figure in common.

use std::collections::{HashMap, VecDeque};

use serde::Serialize;

use super::record::{MeasurementRecord, RunRecord};
use crate::statistics::{Comparison, Direction, Pair, compare};

/// Two runs and the comparison of their figures.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedRuns {
    /// Baseline run.
    pub first: String,
    /// Run that is compared with it.
    pub second: String,
    /// Comparisons in the order of the first run.
    pub comparisons: Vec<Comparison>,
    /// Figures without a counterpart.
    pub only_in_one: Vec<String>,
    /// Runs on the side with fewer, for each comparison.
    #[serde(skip)]
    pub runs: Vec<usize>,
}

/// Two runs without a common figure.
#[derive(Debug, thiserror::Error)]
#[error("{first} and {second} have no measurement in common")]
pub struct NoneInCommon {
    first: String,
    second: String,
}

impl NoneInCommon {
    /// Advice on how to resolve the error.
    pub fn hint(&self) -> &'static str {
        "only runs of the same method can be compared; `stripewise lab show` lists a run's measurements"
    }
}

/// Compares all figures that both runs have.
pub fn compare_runs(first: &RunRecord, second: &RunRecord) -> Result<ComparedRuns, NoneInCommon> {
    let (pairs, only_in_one) = pairs(first, second);
    if pairs.is_empty() {
        return Err(NoneInCommon { first: first.run.clone(), second: second.run.clone() });
    }
    Ok(ComparedRuns {
        first: first.run.clone(),
        second: second.run.clone(),
        comparisons: compare(&pairs),
        only_in_one,
        runs: pairs.iter().map(|pair| pair.first.len().min(pair.second.len())).collect(),
    })
}

/// Figures of both runs by name; a name that occurs several times, as in imports of earlier
/// versions, is paired in order. A host is part of a name if a file has results of several.
fn pairs(first: &RunRecord, second: &RunRecord) -> (Vec<Pair>, Vec<String>) {
    let (mut pairs, mut alone) = (Vec::new(), Vec::new());
    let mut left: HashMap<&str, VecDeque<&MeasurementRecord>> = HashMap::new();
    for figure in &second.measurements {
        left.entry(&figure.name).or_default().push_back(figure);
    }
    // A median of 0 has no ratio.
    let is_comparable = |figure: &MeasurementRecord| figure.runs.iter().any(|value| *value > 0.0);
    for figure in &first.measurements {
        let same = left.get_mut(figure.name.as_str());
        let other = same.and_then(|same| {
            let fits = same.front()?.unit == figure.unit && is_comparable(figure);
            same.pop_front().filter(|other| fits && is_comparable(other))
        });
        match other {
            None => alone.push(figure.name.clone()),
            Some(other) => pairs.push(Pair {
                name: figure.name.clone(),
                first: figure.runs.clone(),
                second: other.runs.clone(),
                direction: match figure.unit.higher_is_better() {
                    true => Direction::HigherIsBetter,
                    false => Direction::LowerIsBetter,
                },
            }),
        }
    }
    let is_left =
        |figure: &&MeasurementRecord| left.get(figure.name.as_str()).is_some_and(|left| !left.is_empty());
    alone.extend(second.measurements.iter().filter(is_left).map(|figure| figure.name.clone()));
    (pairs, alone)
}
