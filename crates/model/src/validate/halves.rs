//! The error on the half of a study that was not fitted.

use super::fit::{Fit, mix, numbers, perturb};
use super::questions::Question;
use super::{Made, Predictor, all_questions, summary};
use crate::studies::{DataError, Row};
use crate::system::Catalogue;

/// The studies whose rows are measurements.
pub(super) const STUDIES: [&str; 4] = ["000", "001", "002", "004"];

/// The error on the half fitted and on the other.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Halves {
    /// Median on the half that numbers were fitted to, in percent.
    pub fitted_median_percent: f64,
    /// Median on the other half.
    pub other_median_percent: f64,
    /// Nine of ten rows of the fitted half err less.
    pub fitted_p90_percent: f64,
    /// Nine of ten rows of the other half err less.
    pub other_p90_percent: f64,
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
    for study in STUDIES {
        let rows: Vec<Row> = rows.iter().filter(|row| row.text("study") == study).cloned().collect();
        if !rows.is_empty() {
            found.push((study.to_owned(), halves(catalogue, &rows, study, seed)?));
        }
    }
    Ok(found)
}

/// Starts every fitted number a quarter off, fits it to a random half of the rows, and predicts the
/// other.
fn halves(catalogue: &Catalogue, rows: &[Row], study: &str, seed: u64) -> Result<Halves, DataError> {
    let (mut chosen, mut other) = (Vec::new(), Vec::new());
    for (index, row) in rows.iter().enumerate() {
        if mix(seed ^ index as u64) & 1 == 0 { chosen.push(row.clone()) } else { other.push(row.clone()) }
    }
    let (chosen, other) = (all_questions(&chosen)?, all_questions(&other)?);
    let (chosen, other): (Vec<&Question>, Vec<&Question>) = (chosen.iter().collect(), other.iter().collect());
    let numbers = numbers(catalogue, study);
    let made = Made::default();
    let mut fitted = catalogue.clone();
    perturb(&mut fitted, &numbers, seed);
    Fit::new(catalogue, &chosen, &made).run(&mut fitted, &numbers);
    let predictor = Predictor::new(&fitted, &made, 1.0);
    let errors = |questions: &[&Question]| {
        let predicted = predictor.answers(questions);
        let pairs = questions.iter().zip(predicted);
        summary::quantiles(pairs.map(|(one, predicted)| super::distance(predicted, one.published)).collect())
    };
    let (chosen, other) = (errors(&chosen), errors(&other));
    Ok(Halves {
        fitted_median_percent: chosen.0,
        other_median_percent: other.0,
        fitted_p90_percent: chosen.1,
        other_p90_percent: other.1,
    })
}
