//! Fitting by coordinate search, and the error on the half that was not fitted.

use super::{Answer, Made, summarise, validate, validate_with};
use crate::studies::{DataError, Row};
use crate::system::Catalogue;

/// Steps of a number, as factors.
const STEPS: [f64; 5] = [0.9, 1.1, 0.97, 1.03, 1.3];
/// Share of the usual requests that a search simulates, and how often it goes through the numbers.
const ROUGHLY: f64 = 0.25;
const ROUNDS: usize = 2;
/// Rows farther off than this count as so far: a few hopeless ones do not lead.
const FAR: f64 = 1.0;

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

/// Cost that a fit minimises: mean distance, with far rows bounded so that a few hopeless ones do
/// not dominate.
fn cost(answers: &[Answer]) -> f64 {
    answers.iter().map(|answer| answer.distance().min(FAR)).sum::<f64>() / answers.len().max(1) as f64
}

/// Improves the fitted numbers of a catalogue on these rows; returns the last cost.
///
/// # Errors
/// Faulty fields.
pub fn fit(
    catalogue: &mut Catalogue,
    rows: &[Row],
    names: &[(String, String)],
    rounds: usize,
) -> Result<f64, DataError> {
    let made = Made::default();
    let mut best = cost(&validate_with(catalogue, rows, &made, ROUGHLY)?);
    for _ in 0..rounds {
        let before = best;
        for (component, name) in names {
            for step in STEPS {
                while let Some(value) = catalogue.value_mut(component, name) {
                    let old = *value;
                    *value = old * step;
                    let tried = cost(&validate_with(catalogue, rows, &made, ROUGHLY)?);
                    if tried + 1e-7 < best {
                        best = tried;
                        continue;
                    }
                    if let Some(value) = catalogue.value_mut(component, name) {
                        *value = old;
                    }
                    break;
                }
            }
        }
        if before - best < 1e-5 {
            break;
        }
    }
    Ok(best)
}

/// Starts every fitted number 20 % off, fits it to a random half of the rows, and predicts the
/// other.
///
/// # Errors
/// Faulty fields.
pub fn halves(
    catalogue: &Catalogue,
    rows: &[Row],
    names: &[(String, String)],
    seed: u64,
) -> Result<Halves, DataError> {
    let (mut chosen, mut other) = (Vec::new(), Vec::new());
    for (index, row) in rows.iter().enumerate() {
        if mix(seed ^ index as u64) & 1 == 0 { chosen.push(row.clone()) } else { other.push(row.clone()) }
    }
    let mut fitted = catalogue.clone();
    for (index, (component, name)) in names.iter().enumerate() {
        if let Some(value) = fitted.value_mut(component, name) {
            *value *= if mix(seed.wrapping_add(77 + index as u64)) & 1 == 0 { 0.8 } else { 1.25 };
        }
    }
    fit(&mut fitted, &chosen, names, ROUNDS)?;
    let (chosen, other) = (summarise(&validate(&fitted, &chosen)?), summarise(&validate(&fitted, &other)?));
    Ok(Halves {
        fitted_median_percent: chosen.median_error_percent,
        other_median_percent: other.median_error_percent,
        fitted_p90_percent: chosen.p90_error_percent,
        other_p90_percent: other.p90_error_percent,
    })
}

/// A number that looks random.
fn mix(seed: u64) -> u64 {
    let mut value = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (value ^ (value >> 31)) >> 7
}
