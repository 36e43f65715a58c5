//! Probability that a drive has a latent sector error, by the time since it was clean.
//!
//! Latent errors occur at random (exponential, mean `1/λ`), and a scrub repairs each after a time
//! with survival function `S`. With π(t) the probability of an error at time t after the drive was
//! clean, π(t) = ∫₀ᵗ λ (1 − π(t − s)) S(s) ds. The integral equation is solved once, on a grid, by
//! the trapezoidal rule; trials interpolate.

use super::law::Law;

const STEPS: usize = 1024;

/// π(t).
pub(super) enum Exposure {
    /// No latent errors.
    None,
    /// Errors stay until the drive is replaced or restored.
    Unscrubbed { per_hour: f64 },
    /// Errors are scrubbed away; the last value holds for ever.
    Scrubbed { step_hours: f64, values: Vec<f64> },
}

impl Exposure {
    pub(super) fn new(latent_hours: Option<f64>, scrub: Option<&Law>) -> Self {
        let Some(mean) = latent_hours else { return Self::None };
        let per_hour = 1.0 / mean;
        let Some(scrub) = scrub else { return Self::Unscrubbed { per_hour } };
        // Twice the longest scrub: by then what the drive was like at the start is forgotten.
        let step_hours = 2.0 * scrub.longest() / STEPS as f64;
        if step_hours == 0.0 {
            return Self::None;
        }
        let survival: Vec<f64> = (0..=STEPS).map(|step| scrub.survival(step as f64 * step_hours)).collect();
        let mut values = vec![0.0; STEPS + 1];
        let weight = per_hour * step_hours;
        for at in 1..=STEPS {
            let past: f64 = (1..at).map(|back| (1.0 - values[at - back]) * survival[back]).sum();
            // The end of the interval contains π(t) itself: solved for it.
            let known = weight * (past + 0.5 * survival[0] + 0.5 * survival[at]);
            values[at] = known / (1.0 + 0.5 * weight * survival[0]);
        }
        Self::Scrubbed { step_hours, values }
    }

    /// Probability of an error `hours` after the drive was clean.
    #[inline]
    pub(super) fn at(&self, hours: f64) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Unscrubbed { per_hour } => -(-hours * per_hour).exp_m1(),
            Self::Scrubbed { step_hours, values } => {
                let at = hours / step_hours;
                let index = at as usize;
                match values.get(index + 1) {
                    None => values[STEPS],
                    Some(next) => values[index] + (next - values[index]) * (at - index as f64),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exposure_converges_to_the_time_with_an_error() {
        for (text, mean) in [("exponential:100", 100.0), ("fixed:48", 48.0), ("weibull:6,168,3", 156.02)] {
            let scrub: Law = text.parse().unwrap();
            let exposure = Exposure::new(Some(1000.0), Some(&scrub));
            let wanted = mean / (1000.0 + mean);
            assert!((exposure.at(1e6) / wanted - 1.0).abs() < 0.01, "{text}: {}", exposure.at(1e6));
            assert_eq!(exposure.at(0.0), 0.0);
        }
    }

    #[test]
    fn exponential_scrubs_match_the_closed_formula() {
        let exposure = Exposure::new(Some(1000.0), Some(&Law::exponential(100.0)));
        let rate: f64 = 1.0 / 1000.0 + 1.0 / 100.0;
        for hours in [10.0f64, 50.0, 100.0, 300.0, 1000.0] {
            let wanted = (1.0 / 1000.0) / rate * -(-rate * hours).exp_m1();
            assert!((exposure.at(hours) / wanted - 1.0).abs() < 0.02, "{hours}: {}", exposure.at(hours));
        }
    }
}
