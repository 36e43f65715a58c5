//! Statistics of the order of runs: drift, outliers, and the steady state of a benchmark in rounds.
//! Pure.
//!
//! Drift is detected by Kendall's rank test against time (Mann 1945), outliers by the modified
//! z-score of Iglewicz and Hoaglin (1993), and the steady state as defined by the SNIA Solid State
//! Storage Performance Test Specification: five rounds within 20 % of their mean, and a fitted line
//! that rises or falls by at most 10 % of the mean over them.

use super::{mean, median};

/// Number of rounds that must agree.
pub(crate) const STEADY_ROUNDS: usize = 5;
/// Maximum distance of the highest from the lowest, as a share of the mean.
const MOST_SPREAD: f64 = 0.2;
/// Maximum change over the window, as a share of the mean.
const MOST_RISE: f64 = 0.1;

/// True if later runs are higher or lower than earlier ones at 5 %; needs five runs.
pub(crate) fn drifts(values: &[f64]) -> bool {
    let count = values.len();
    if count < 5 {
        return false;
    }
    let pairs = (0..count).flat_map(|late| (0..late).map(move |early| (early, late)));
    let score: f64 =
        pairs.map(|(early, late)| (values[late] - values[early]).total_cmp(&0.0) as i32 as f64).sum();
    let n = count as f64;
    let deviation = (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    // The normal approximation with continuity correction; close to the exact table from five runs
    // on.
    (score.abs() - 1.0) / deviation > 1.959_964
}

/// Indexes of values far from the others: a modified z-score above 3.5. Empty if half of all values
/// are equal.
pub(crate) fn outliers(values: &[f64]) -> Vec<usize> {
    let Some(middle) = median(values) else { return Vec::new() };
    let distances: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    match median(&distances) {
        Some(typical) if typical > 0.0 => distances
            .iter()
            .enumerate()
            .filter(|(_, distance)| 0.6745 * **distance / typical > 3.5)
            .map(|(index, _)| index)
            .collect(),
        _ => Vec::new(),
    }
}

/// True if the last [`STEADY_ROUNDS`] rounds are steady.
pub(crate) fn is_steady(rounds: &[f64]) -> bool {
    steadiness(rounds).is_some_and(|last| last.spread <= MOST_SPREAD && last.rise <= MOST_RISE)
}

/// Variation of the last [`STEADY_ROUNDS`] rounds, as shares of their mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Steadiness {
    /// Distance of the highest from the lowest.
    pub(crate) spread: f64,
    /// Change over the window of the line through them.
    pub(crate) rise: f64,
}

/// Variation of the last rounds; `None` if they are too few.
pub(crate) fn steadiness(rounds: &[f64]) -> Option<Steadiness> {
    let last = rounds.len().checked_sub(STEADY_ROUNDS).map(|from| &rounds[from..])?;
    let mean = mean(last).filter(|mean| *mean > 0.0)?;
    let highest = last.iter().copied().fold(f64::MIN, f64::max);
    let lowest = last.iter().copied().fold(f64::MAX, f64::min);
    let centre = (STEADY_ROUNDS - 1) as f64 / 2.0;
    let slope = last.iter().enumerate().map(|(at, value)| (at as f64 - centre) * (value - mean)).sum::<f64>()
        / (0..STEADY_ROUNDS).map(|at| (at as f64 - centre).powi(2)).sum::<f64>();
    let rise = slope.abs() * (STEADY_ROUNDS - 1) as f64;
    Some(Steadiness { spread: (highest - lowest) / mean, rise: rise / mean })
}

/// The steady state in words: reached or not, and by how much.
pub(crate) fn steady_text(rounds: &[f64]) -> Result<String, String> {
    let Some(last) = steadiness(rounds) else {
        return Err(format!(
            "steady state not reached: {} rounds of the {STEADY_ROUNDS} needed",
            rounds.len()
        ));
    };
    let (spread, rise) = (100.0 * last.spread, 100.0 * last.rise);
    match is_steady(rounds) {
        true => Ok(format!(
            "steady state reached in round {}: the last {STEADY_ROUNDS} lie within {spread:.0} % of \
             their mean, with a slope of {rise:.0} %",
            rounds.len()
        )),
        false => Err(format!(
            "steady state not reached in {} rounds: the last {STEADY_ROUNDS} lie within {spread:.0} \
             % of their mean (at most {:.0} %), with a slope of {rise:.0} % (at most {:.0} %)",
            rounds.len(),
            100.0 * MOST_SPREAD,
            100.0 * MOST_RISE
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_is_seen_and_noise_is_not() {
        assert!(drifts(&[1.0, 2.0, 3.0, 4.0, 5.0]));
        assert!(drifts(&[9.0, 8.0, 7.5, 7.0, 6.0, 6.1]));
        assert!(!drifts(&[5.0, 4.0, 6.0, 5.5, 4.5, 5.2]));
        assert!(!drifts(&[1.0, 2.0, 3.0, 4.0]), "four runs are too few");
        assert!(!drifts(&[3.0; 8]));
    }

    #[test]
    fn only_distant_values_are_outliers() {
        assert_eq!(outliers(&[10.0, 10.1, 9.9, 10.2, 9.8, 14.0]), [5]);
        assert!(outliers(&[10.0, 11.0, 9.0, 10.5, 9.5]).is_empty());
        assert!(outliers(&[]).is_empty() && outliers(&[1.0, 1.0, 1.0, 2.0]).is_empty());
    }

    #[test]
    fn the_steady_state_is_that_of_the_specification() {
        assert!(is_steady(&[900.0, 500.0, 100.0, 101.0, 99.0, 100.0, 102.0]));
        assert!(!is_steady(&[100.0, 101.0, 99.0, 100.0]), "five rounds");
        assert!(!is_steady(&[100.0, 125.0, 100.0, 101.0, 99.0]), "within 20 %");
        assert!(!is_steady(&[100.0, 103.0, 106.0, 109.0, 112.0]), "slope");
    }
}
