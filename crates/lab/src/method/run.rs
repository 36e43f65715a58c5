//! Runs a profile on a target with the native driver, in real or virtual time, one figure at a
//! time.
//!
//! Expects targets that fail, that are too small for a step (reported; the others continue) or that
//! stop answering, and interrupts: the observer keeps all figures measured so far.

use std::future::Future;

use stripewise_drive::Context;

use super::profile::{Profile, Step};
use super::validity::Circumstances;
use crate::loads::load::Pulse;
use crate::loads::target::Target;
use crate::loads::workload::random_stream;
use crate::records::record::MeasurementRecord;
use crate::records::store::Sample;

mod session;
#[cfg(test)]
mod tests;

pub(crate) use session::{Manner, Session, needs_more};

/// A target that does not answer within this time is abandoned.
const LIMIT_NS: u64 = 120_000_000_000;

/// Reason for ending a run early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The fill before the measurements failed.
    #[error("filling the target: {0}")]
    Fill(String),
    /// Requests were not answered.
    #[error("{step}: {count} requests were not answered within {} seconds", LIMIT_NS / 1_000_000_000)]
    Stuck {
        /// The measurement.
        step: String,
        /// Number of requests.
        count: u64,
    },
    /// Every request failed.
    #[error("{step}: {why}")]
    Failed {
        /// The measurement.
        step: String,
        /// First error message.
        why: String,
    },
    /// Contents differ from what was written.
    #[error("{bytes} bytes differ from what was written; the first at {offset_bytes}: {what}")]
    Damaged {
        /// Number of bytes, in blocks of 4 KiB.
        bytes: u64,
        /// Offset of the first.
        offset_bytes: u64,
        /// Contents found there.
        what: String,
    },
    /// An action on the target failed.
    #[error(transparent)]
    Hook(#[from] HookError),
    /// The observer asked for it before the measurements began.
    #[error("interrupted")]
    Interrupted,
    /// The observer could not keep a figure.
    #[error("{0}")]
    Observer(String),
}

/// A target failed to change its state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hook `{hook}` {why}")]
pub struct HookError {
    /// The hook that failed.
    pub hook: &'static str,
    /// Its message.
    pub why: String,
}

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// Runs of each measurement, in place of the profile's.
    pub runs: Option<u32>,
    /// Maximum half-width of the 95 % interval as a share of the figure; more runs follow until it
    /// is reached.
    pub within: Option<f64>,
    /// Maximum number of runs in that case.
    pub most_runs: u32,
    /// Length of each run, in place of the profile's.
    pub seconds: Option<f64>,
    /// Bytes of the target in use.
    pub size_bytes: u64,
    /// True if the target may be written.
    pub may_write: bool,
    /// True if a writable target is written once before the measurements.
    pub fills: bool,
    /// Minimum time before each run that does not count, in seconds; by default a tenth of the run.
    pub ramp_seconds: f64,
    /// True if time is virtual.
    pub virtual_time: bool,
    /// Random seed.
    pub seed: u64,
    /// Known facts about the host.
    pub circumstances: Circumstances,
}

/// Observes figures as they grow.
pub trait Observer {
    /// A run begins: number of the step, of all steps, and of the run.
    fn begins(&self, step: &Step, position: usize, steps: usize, run: u32);
    /// Bytes moved so far by the current load, and its requests since the last look at `pulse`.
    fn moved(&self, bytes: u64, pulse: &Pulse);
    /// Run of figure number `position` is complete.
    ///
    /// # Errors
    /// If it cannot be kept; the run ends.
    fn measured(&self, position: usize, figure: &MeasurementRecord, sample: &Sample) -> Result<(), RunError>;
    /// A pass over the whole target, before or after the measurements, is at `done_bytes`.
    fn swept(&self, _what: &'static str, _done_bytes: u64, _total_bytes: u64) {}
    /// The load of a run has ended, valid or not.
    fn ended(&self, _step: &Step) {}
    /// True to stop in an orderly way.
    fn is_interrupted(&self) -> bool;
}

/// Environment of a run.
pub struct Runner<'a, T: Target> {
    /// Clock and tasks.
    pub context: Context,
    /// Measured target.
    pub target: T,
    /// Settings.
    pub settings: RunSettings,
    /// Receives progress and figures.
    pub observer: &'a dyn Observer,
    /// Processor time used so far.
    pub cpu_seconds: &'a dyn Fn() -> Option<f64>,
}

/// Measures every step of `profile` and returns the figures in order. Impossible steps are left
/// out, with a note.
pub async fn run_profile<T: Target>(
    profile: &Profile,
    runner: &Runner<'_, T>,
) -> Result<(Vec<MeasurementRecord>, Vec<String>), RunError> {
    let mut session = Session::begin(profile, runner, &[""]).await?;
    for number in 0..session.plans.len() {
        if session.is_interrupted() {
            break;
        }
        runner.context.sleep_ns((profile.pause_seconds * 1e9) as u64).await;
        while session.wants_more(number) && !session.is_interrupted() {
            session.run_once(number, &Whole).await?;
        }
    }
    session.end().await
}

/// Measures several targets in turns: each round takes one run of every step of each, the targets
/// in random order, so that drift over time affects all of them alike. Returns the same as
/// [`run_profile`], for each target.
pub async fn run_interleaved<T: Target>(
    profile: &Profile,
    runners: &[Runner<'_, T>],
) -> Result<Vec<(Vec<MeasurementRecord>, Vec<String>)>, RunError> {
    let mut sessions = Vec::new();
    for runner in runners {
        sessions.push(Session::begin(profile, runner, &[""]).await?);
    }
    let mut random = random_stream(runners.first().map_or(0, |runner| runner.settings.seed), u64::MAX);
    let mut going: Vec<usize> = (0..sessions.len()).collect();
    while !going.is_empty() {
        for at in (1..going.len()).rev() {
            going.swap(at, random.below(at as u64 + 1) as usize);
        }
        for at in &going {
            let session = &mut sessions[*at];
            for number in 0..session.plans.len() {
                if session.wants_more(number) && !session.is_interrupted() {
                    session.run_once(number, &Whole).await?;
                }
            }
        }
        going.retain(|at| {
            let session = &sessions[*at];
            !session.is_interrupted() && (0..session.plans.len()).any(|number| session.wants_more(number))
        });
    }
    let mut all = Vec::new();
    for session in sessions {
        all.push(session.end().await?);
    }
    Ok(all)
}

/// Condition that must hold throughout a run for it to count.
pub(crate) trait Condition {
    /// True while the run continues.
    fn holds(&self) -> bool;
}

/// Only the clock ends a run.
pub(crate) struct Whole;

impl Condition for Whole {
    fn holds(&self) -> bool {
        true
    }
}

/// The runs of a method in every state, with any driver.
pub(crate) trait Driven {
    /// A load that continues during an action on the target.
    type Load;

    /// Number of steps over all states; those of one state are adjacent.
    fn steps(&self) -> usize;

    fn name(&self, number: usize) -> &str;

    /// True if a step needs another run: up to the planned number, and on until the interval is as
    /// narrow as requested.
    fn wants_more(&self, number: usize) -> bool;

    fn is_interrupted(&self) -> bool;

    /// Performs one run of a step. Returns true if `condition` held throughout; a run cut to less
    /// than half does not count.
    fn run_once(
        &mut self,
        number: usize,
        condition: &dyn Condition,
    ) -> impl Future<Output = Result<bool, RunError>>;

    /// Starts the load of a step, if given.
    fn start_load(
        &mut self,
        number: Option<usize>,
    ) -> impl Future<Output = Result<Option<Self::Load>, RunError>>;

    /// Ends the load; requests that failed while a drive was lost are part of the observation.
    fn end_load(
        &mut self,
        load: Option<Self::Load>,
        beside: &str,
    ) -> impl Future<Output = Result<(), RunError>>;

    fn note(&mut self, text: String);
}
