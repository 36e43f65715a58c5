//! Trials until the interval is narrow enough, and the figures that they give.

use serde::Serialize;

use super::rounds::{Rounds, Stop, run_blocks};
use super::tally::{Of, Sums};
use super::{HOURS_PER_YEAR, Question, QuestionError};

/// A figure with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The estimate.
    pub mean: f64,
    /// Low and high.
    pub ci95: [f64; 2],
}

/// The answer, per mission unless its name says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Trials made.
    pub trials: u64,
    /// Probability of data loss.
    pub loss_probability: Figure,
    /// Probability of data loss within a year, on average over the mission.
    pub loss_probability_per_year: Figure,
    /// Data losses over 1000 arrays.
    pub events_per_1000: Figure,
    /// Losses among them where a drive failure met a latent error.
    pub latent_events_per_1000: Figure,
    /// Mean time to data loss; `None` if no trial lost data.
    pub mttdl_hours: Option<Figure>,
    /// Hours with a drive missing.
    pub hours_degraded_per_year: Figure,
    /// Hours without redundancy left.
    pub hours_critical_per_year: Figure,
    /// Rebuilds.
    pub rebuilds: Figure,
    /// New drives.
    pub replacement_drives: Figure,
    /// Bytes lost.
    pub expected_bytes_lost: Figure,
}

/// Answers a question; `bytes_per_group` is the data of one group. `progress` receives the number
/// of trials made and the estimated total, and ends the work by returning false.
pub fn estimate(
    question: &Question,
    bytes_per_group: f64,
    seed: u64,
    stop: &Stop,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Estimate, QuestionError> {
    let pool = match stop.threads {
        None => None,
        Some(threads) => {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            Some(pool.map_err(|error| QuestionError::Threads(error.to_string()))?)
        }
    };
    let mut rounds = Rounds::new(question, stop)?;
    while let Some(blocks) = rounds.next_blocks() {
        let trials = || run_blocks(question, bytes_per_group, seed, blocks, &|| true);
        let round = match &pool {
            None => trials(),
            Some(pool) => pool.install(trials),
        };
        rounds.add(round?.expect("nothing stops this round"));
        if rounds.next_blocks().is_some() && !progress(rounds.trials(), rounds.expected_trials()) {
            break;
        }
    }
    Ok(answer(rounds.sums(), question))
}

impl Rounds {
    /// The answer after the rounds that were added.
    pub fn answer(&self, question: &Question) -> Estimate {
        answer(self.sums(), question)
    }
}

fn answer(sums: &Sums, question: &Question) -> Estimate {
    let scaled = |of, factor: f64| {
        let (mean, half) = (sums.mean(of), sums.half_width(of));
        Figure { mean: mean * factor, ci95: [(mean - half).max(0.0) * factor, (mean + half) * factor] }
    };
    let years = question.mission_hours / HOURS_PER_YEAR;
    let mut loss = scaled(Of::Loss, 1.0);
    if loss.mean == 0.0 {
        // No loss in all trials: the rule of three.
        loss.ci95[1] = 3.0 / sums.trials as f64;
    }
    loss.mean = loss.mean.min(1.0);
    loss.ci95[1] = loss.ci95[1].min(1.0);
    let per_year = |probability: f64| -((-probability).ln_1p() / years).exp_m1();
    let events = scaled(Of::Events, 1.0);
    let hours = |events: f64| question.mission_hours / events;
    Estimate {
        trials: sums.trials,
        loss_probability: loss,
        loss_probability_per_year: Figure { mean: per_year(loss.mean), ci95: loss.ci95.map(per_year) },
        events_per_1000: scaled(Of::Events, 1000.0),
        latent_events_per_1000: scaled(Of::LatentEvents, 1000.0),
        mttdl_hours: (events.ci95[0] > 0.0).then(|| Figure {
            mean: hours(events.mean),
            ci95: [hours(events.ci95[1]), hours(events.ci95[0])],
        }),
        hours_degraded_per_year: scaled(Of::DegradedHours, 1.0 / years),
        hours_critical_per_year: scaled(Of::CriticalHours, 1.0 / years),
        rebuilds: scaled(Of::Rebuilds, 1.0),
        replacement_drives: scaled(Of::Replacements, 1.0),
        expected_bytes_lost: scaled(Of::BytesLost, 1.0),
    }
}
