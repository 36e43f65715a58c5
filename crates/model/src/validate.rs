//! Published rows beside their predictions, and the prediction errors.
//!
//! A row is a question to a system of the catalogue; a row that no system answers counts as the
//! worst.
//! Errors are exp|ln(predicted/published)| − 1, in percent.

mod answers;
mod expected;
mod findings;
mod fit;
mod halves;
mod left_out;
mod questions;
mod report;
mod summary;

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};

use serde::Serialize;

use crate::predict::{Prediction, SEED, State, Workload, predict, predict_roughly};
use crate::studies::{self, DataError, Row};
use crate::system::{Catalogue, ComponentKind, How, System};
use questions::{Question, Subject};

pub use expected::Expected;
pub use findings::{Finding, Verdict, findings};
pub use halves::{Halves, all_halves};
pub use left_out::{LeftOut, LeftOutGroup, OneOf, leave_out};
pub use report::{Checks, chart, markdown};
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
        distance(self.predicted, self.published)
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
    /// Systems by their names, or as their configurations are written out.
    systems: Mutex<HashMap<String, Option<Arc<System>>>>,
}

impl<'a> Predictor<'a> {
    fn new(catalogue: &'a Catalogue, made: &'a Made, effort: f64) -> Self {
        Self { catalogue, made, effort, systems: Mutex::default() }
    }

    /// The system that a question is about; `None`: the catalogue has no such system.
    fn system(&self, subject: &Subject) -> Option<Arc<System>> {
        let name = match subject {
            Subject::Named(name) => name.clone(),
            Subject::Made(configuration) => format!("{configuration:?}"),
        };
        if let Some(known) = self.systems.lock().expect("no panic while it is held").get(&name) {
            return known.clone();
        }
        let system = match subject {
            Subject::Named(name) => self.catalogue.system(name),
            Subject::Made(configuration) => {
                let name = format!("{} {}", configuration.drives, configuration.layout);
                self.catalogue.build(&name, configuration)
            }
        };
        let system = system.ok().map(Arc::new);
        self.systems.lock().expect("no panic while it is held").insert(name, system.clone());
        system
    }

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

    /// Answers of all these questions, in their order.
    fn answers(&self, questions: &[&Question]) -> Vec<Option<f64>> {
        use rayon::prelude::*;
        questions.par_iter().map(|question| answers::answer(self, question)).collect()
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
    let questions = all_questions(rows)?;
    let asked: Vec<&Question> = questions.iter().collect();
    let made = Made::default();
    let predicted = Predictor::new(catalogue, &made, 1.0).answers(&asked);
    let patterns = fitted_patterns(catalogue);
    let carried: HashSet<String> =
        all_questions(&studies::built_in()).unwrap_or_default().iter().map(label).collect();
    let answer = |(question, predicted): (Question, Option<f64>)| {
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
        answer
    };
    Ok(questions.into_iter().zip(predicted).map(answer).collect())
}

/// The questions of all rows that are measurements.
fn all_questions(rows: &[Row]) -> Result<Vec<Question>, DataError> {
    rows.iter().filter_map(|row| questions::question(row).transpose()).collect()
}

/// The size of an error as a logarithm; what is not answered is far off.
fn distance(predicted: Option<f64>, published: f64) -> f64 {
    match predicted {
        Some(predicted) if predicted > 0.0 && published > 0.0 => (predicted / published).ln().abs(),
        Some(predicted) if predicted == published => 0.0,
        _ => UNANSWERED,
    }
}

/// Text in which the patterns of fitted rows are searched for.
fn label(question: &Question) -> String {
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
