//! Published rows beside their predictions, and the prediction errors.
//!
//! A row is a question to a system of the catalogue; a row that no system answers counts as the
//! worst.
//! Errors are exp|ln(predicted/published)| − 1, in percent.

mod expected;
mod findings;
mod fit;
mod questions;
mod report;
mod summary;

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Mutex;

use serde::Serialize;

use crate::predict::{Prediction, SEED, State, Workload, predict, predict_roughly};
use crate::studies::{self, DataError, Row};
use crate::system::{Catalogue, ComponentKind, How, System};

pub use expected::Expected;
pub use findings::{Finding, Verdict, findings};
pub use fit::{Halves, fit, halves};
pub use report::{chart, markdown};
pub use summary::{Summary, TableSummary, summarise, tables};

/// A row and its prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// Number of the study.
    pub study: String,
    /// Its table.
    pub table: String,
    /// Configuration and test.
    pub row: String,
    /// Name of the figures, with their unit.
    pub metric: String,
    /// Published figure.
    pub published: f64,
    /// Predicted figure; null if no system answers.
    pub predicted: Option<f64>,
    /// exp|ln(predicted/published)| − 1 in percent, negative where the prediction is too low.
    pub error_percent: Option<f64>,
    /// True if a number of the catalogue was fitted to this row.
    pub fitted: bool,
    /// Rows of one test differ in the configuration only.
    #[serde(skip)]
    pub test: String,
    /// Name of the configuration.
    #[serde(skip)]
    pub configuration: String,
}

impl Answer {
    /// The size of the error as a logarithm; what is not answered is far off.
    pub fn distance(&self) -> f64 {
        match self.predicted {
            Some(predicted) if predicted > 0.0 && self.published > 0.0 => {
                (predicted / self.published).ln().abs()
            }
            Some(predicted) if predicted == self.published => 0.0,
            _ => UNANSWERED,
        }
    }
}

/// The distance of a row without an answer: a factor of a thousand.
pub(crate) const UNANSWERED: f64 = 6.907_755_278_982_137;

/// Predictions that several rows need, each made once: by everything that it depends on.
#[derive(Default)]
struct Made(Mutex<HashMap<u64, Prediction>>);

/// Answers with the numbers of a catalogue.
struct Predictor<'a> {
    catalogue: &'a Catalogue,
    made: &'a Made,
    effort: f64,
}

impl Predictor<'_> {
    fn predict(&self, system: &System, state: State, workload: &Workload) -> Prediction {
        if system.drive.kind == ComponentKind::Ssd {
            return predict(system, state, workload);
        }
        let key = key(system, state, workload, self.effort);
        if let Some(made) = self.made.0.lock().expect("no panic while it is held").get(&key) {
            return made.clone();
        }
        let prediction = predict_roughly(system, state, workload, SEED, self.effort);
        self.made.0.lock().expect("no panic while it is held").insert(key, prediction.clone());
        prediction
    }
}

/// All numbers that a prediction depends on, as one.
fn key(system: &System, state: State, workload: &Workload, effort: f64) -> u64 {
    let mut hasher = DefaultHasher::new();
    let parts = [Some(&system.drive), Some(&system.controller), system.link.as_ref()];
    for part in parts.into_iter().chain([system.journal.as_ref().map(|(_, drive)| drive)]) {
        for (name, parameter) in part.iter().flat_map(|part| &part.parameters) {
            (name, parameter.value.to_bits()).hash(&mut hasher);
        }
        part.is_some().hash(&mut hasher);
    }
    let rest = (system.drives, system.controllers, system.over, system.file_system, &system.shape);
    let journal = system.journal.as_ref().map(|(count, _)| count);
    format!("{rest:?} {journal:?} {} {state:?} {workload:?} {effort}", system.filled).hash(&mut hasher);
    hasher.finish()
}

/// Answers all rows that are measurements.
///
/// # Errors
/// A field that is not what its heading says.
pub fn validate(catalogue: &Catalogue, rows: &[Row]) -> Result<Vec<Answer>, DataError> {
    validate_with(catalogue, rows, &Made::default(), 1.0)
}

/// Validates with earlier predictions, and a multiple of the usual number of simulated requests.
fn validate_with(
    catalogue: &Catalogue,
    rows: &[Row],
    made: &Made,
    effort: f64,
) -> Result<Vec<Answer>, DataError> {
    use rayon::prelude::*;
    let predictor = Predictor { catalogue, made, effort };
    let patterns = fitted_patterns(catalogue);
    let carried: HashSet<String> = studies::built_in()
        .iter()
        .filter_map(|row| questions::question(row).ok().flatten())
        .map(|question| label(&question))
        .collect();
    let answers: Result<Vec<Option<Answer>>, DataError> = rows
        .par_iter()
        .map(|row| {
            let Some(question) = questions::question(row)? else { return Ok(None) };
            let predicted = questions::answer(&predictor, &question);
            let label = label(&question);
            let chosen = |pattern: &String| pattern.split(' ').all(|word| label.contains(word));
            let mut answer = Answer {
                fitted: carried.contains(&label) && patterns.iter().any(chosen),
                study: question.study,
                table: question.table,
                row: question.row,
                metric: question.metric,
                published: question.published,
                predicted,
                error_percent: None,
                test: question.test,
                configuration: question.configuration,
            };
            answer.error_percent = predicted.map(|predicted| {
                let percent = 100.0 * (answer.distance().exp() - 1.0);
                if predicted < answer.published { -percent } else { percent }
            });
            Ok(Some(answer))
        })
        .collect();
    Ok(answers?.into_iter().flatten().collect())
}

/// Text in which the patterns of fitted rows are searched for.
fn label(question: &questions::Question) -> String {
    format!("{} {} {} {}", question.study, question.table, question.row, question.metric)
}

/// The rows that fitted and measured numbers name as their source.
fn fitted_patterns(catalogue: &Catalogue) -> Vec<String> {
    let parameters = catalogue.component.values().flat_map(|component| component.parameters.values());
    let chosen = parameters.filter(|one| matches!(one.how, How::Fitted | How::Measured));
    let sources = chosen.flat_map(|one| one.source.split("; "));
    let patterns = sources.map(|source| source.split(':').next().unwrap_or(source).to_owned());
    patterns.filter(|pattern| pattern.starts_with("00")).collect()
}

/// The error of each study on a random half that its numbers were not fitted to.
///
/// # Errors
/// Faulty fields.
pub fn all_halves(
    catalogue: &Catalogue,
    rows: &[Row],
    seed: u64,
) -> Result<Vec<(String, Halves)>, DataError> {
    let mut found = Vec::new();
    for study in ["000", "001", "002", "004"] {
        let rows: Vec<Row> = rows.iter().filter(|row| row.text("study") == study).cloned().collect();
        let mut names = catalogue.fitted();
        names.retain(|(component, name)| {
            let source = &catalogue.component[component].parameters[name].source;
            source.trim_start_matches("study ").starts_with(study)
        });
        // The shared part of the systems, their drives, comes first.
        names
            .sort_by_key(|(component, _)| !matches!(catalogue.component[component].kind, ComponentKind::Hdd));
        if !rows.is_empty() {
            found.push((study.to_owned(), halves(catalogue, &rows, &names, seed)?));
        }
    }
    Ok(found)
}
