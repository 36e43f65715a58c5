//! Probability that an array loses data: event-driven Monte Carlo of drive failures, latent sector
//! errors, scrubs and rebuilds.
//!
//! `docs/advice.md` has the model, its formulas and the sources of its defaults. A question is data
//! ([`Question`]); [`estimate`] answers it with intervals. The answer depends on the question and
//! the seed only, never on the number of threads.
//!
//! Expected faults: invalid laws and structures, refused before the first trial.

mod defaults;
mod estimate;
mod exposure;
mod law;
pub mod notation;
mod path;
mod philox;
mod rebuild;
mod rounds;
mod structure;
mod tally;
mod ure;
mod wishes;

pub use defaults::{Assumed, FAILURE, HOURS_PER_YEAR};
pub use estimate::{Estimate, Figure, estimate};
pub use law::{Law, LawError};
pub use rebuild::{PredictedRebuild, predicted_rebuild};
pub use rounds::{Rounds, Stop, run_blocks};
pub use structure::{Group, Stacked, Structure};
pub use tally::Sums;
pub use ure::{BitErrors, RebuildErrors, chance, chance_per_year, percent};
pub use wishes::{Asked, Spares, WishError, Wishes};

/// Inputs of an estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Redundancy groups of the drives.
    pub structure: Structure,
    /// Observation time of the array, in hours.
    pub mission_hours: f64,
    /// Age at which a drive fails: Weibull without a location, or exponential.
    pub failure: Law,
    /// Duration of a rebuild.
    pub restore: Law,
    /// Scheduling of concurrent rebuilds in one group.
    pub repairs: Repairs,
    /// Time from a failure until a new drive is installed, if there is no spare.
    pub replacement: Option<Law>,
    /// Spare drives, dedicated or as space on all drives.
    pub spares: usize,
    /// Mean hours until a clean drive has a latent sector error.
    pub latent_hours: Option<f64>,
    /// Time from a latent error until a scrub repairs it; `None`: no scrubs.
    pub scrub: Option<Law>,
    /// Probability that a rebuild's read of one whole drive meets an unreadable sector.
    pub read_error: f64,
    /// Drives of one batch that share a fault.
    pub batch: Option<Batch>,
    /// Data lost by one latent error, in bytes.
    pub sector_bytes: f64,
}

/// Number of concurrent rebuilds in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repairs {
    /// The next begins when the last has ended.
    OneAtATime,
    /// Each begins as soon as its drive is there.
    Parallel,
}

/// Batches of drives: a share of them fails faster, all drives of the batch alike. The mean rate of
/// failures over all batches stays that of the failure law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Batch {
    /// Share of bad batches, above 0 and below 1.
    pub share: f64,
    /// Factor on the failure rate of their drives.
    pub factor: f64,
}

/// Reason why a question cannot be answered.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum QuestionError {
    /// A number outside the valid range.
    #[error("invalid {what} of {value}: it must be {wanted}")]
    Number {
        /// Name of the parameter.
        what: &'static str,
        /// As given.
        value: f64,
        /// Valid values.
        wanted: &'static str,
    },
    /// The system cannot start threads.
    #[error("cannot start threads: {0}")]
    Threads(String),
    /// Failures with a time before which no drive fails are not supported.
    #[error("drive failures have no location: ages count from zero")]
    FailureLocation,
    /// Failures at fixed times are not supported.
    #[error("drive failures are a Weibull or an exponential law, not `{0}`")]
    FailureLaw(Law),
}

impl Question {
    /// Checks that the question can be answered.
    pub fn check(&self) -> Result<(), QuestionError> {
        let number = |what, value: f64, fits: bool, wanted| match fits && value.is_finite() {
            true => Ok(()),
            false => Err(QuestionError::Number { what, value, wanted }),
        };
        number("a mission in hours", self.mission_hours, self.mission_hours > 0.0, "more than 0")?;
        if let Some(hours) = self.latent_hours {
            number("a mean time to latent errors", hours, hours > 0.0, "more than 0 hours")?;
        }
        number(
            "a probability of read errors",
            self.read_error,
            (0.0..=1.0).contains(&self.read_error),
            "0 to 1",
        )?;
        if let Some(Batch { share, factor }) = self.batch {
            number("a share of bad batches", share, share > 0.0 && share < 1.0, "between 0 and 1")?;
            number("a factor of bad batches", factor, factor >= 1.0, "1 or more")?;
        }
        match self.failure {
            Law::Weibull { location, .. } if location != 0.0 => Err(QuestionError::FailureLocation),
            Law::Weibull { .. } => Ok(()),
            other => Err(QuestionError::FailureLaw(other)),
        }
    }
}
