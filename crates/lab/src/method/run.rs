//! Carries out a profile on a target with the native driver, in real or virtual time, one figure
//! after the other.
//!
//! Expects targets that fail, that are too small for a step (told, the others go on), that stop
//! answering, and an interrupt: what was measured until then is kept by the observer.

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

/// A target that does not answer for so long is given up.
const LIMIT_NS: u64 = 120_000_000_000;

/// What ends a run early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// Filling it before the measurements failed.
    #[error("filling the target: {0}")]
    Fill(String),
    /// Requests are not answered.
    #[error("{step}: {count} requests were not answered within {} seconds", LIMIT_NS / 1_000_000_000)]
    Stuck {
        /// The measurement.
        step: String,
        /// How many.
        count: u64,
    },
    /// Every request failed.
    #[error("{step}: {why}")]
    Failed {
        /// The measurement.
        step: String,
        /// The first message.
        why: String,
    },
    /// What is there is not what was written.
    #[error("{bytes} bytes are not as they were written; the first at {offset_bytes}: {what}")]
    Damaged {
        /// How many, in blocks of 4 KiB.
        bytes: u64,
        /// The first place.
        offset_bytes: u64,
        /// What is there instead.
        what: String,
    },
    /// What was to be done to the target failed.
    #[error(transparent)]
    Hook(#[from] HookError),
    /// The observer could not keep a figure.
    #[error("{0}")]
    Observer(String),
}

/// Why a target did not get into another state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hook `{hook}` {why}")]
pub struct HookError {
    /// Which of its hooks says so.
    pub hook: &'static str,
    /// What it says.
    pub why: String,
}

/// What is asked of a run.
#[derive(Clone, Debug)]
pub struct RunSettings {
    /// Runs of each measurement, where the profile's own are not wanted.
    pub runs: Option<u32>,
    /// More runs, until half the 95 % interval is at most this share of the figure.
    pub within: Option<f64>,
    /// But not more than this.
    pub most_runs: u32,
    /// Length of each, where the profile's own is not wanted.
    pub seconds: Option<f64>,
    /// Bytes of the target in use.
    pub size_bytes: u64,
    /// Whether anything may be written.
    pub may_write: bool,
    /// Whether the target is written once before anything is measured, where it may be.
    pub fills: bool,
    /// Time before each run that does not count, in seconds, where its own tenth is not enough.
    pub ramp_seconds: f64,
    /// Whether time is virtual.
    pub virtual_time: bool,
    /// Where all random choices start.
    pub seed: u64,
    /// What is known of the host.
    pub circumstances: Circumstances,
}

/// Hears of every figure as it grows.
pub trait Observer {
    /// Before a run: which step of how many, which run.
    fn begins(&self, step: &Step, position: usize, steps: usize, run: u32);
    /// Bytes moved so far by the load under way, and its requests since somebody looked at `pulse`.
    fn moved(&self, bytes: u64, pulse: &Pulse);
    /// A run of figure number `position` is done.
    ///
    /// # Errors
    /// Where it cannot be kept; the run ends.
    fn measured(&self, position: usize, figure: &MeasurementRecord, sample: &Sample) -> Result<(), RunError>;
    /// The load of a run has ended, whether the run counts or not.
    fn ended(&self, _step: &Step) {}
    /// Whether to stop in order.
    fn is_interrupted(&self) -> bool;
}

/// What a run needs besides the profile.
pub struct Runner<'a, T: Target> {
    /// Clock and tasks.
    pub context: Context,
    /// What is measured.
    pub target: T,
    /// How.
    pub settings: RunSettings,
    /// Hears of it.
    pub observer: &'a dyn Observer,
    /// Processor time used so far.
    pub cpu_seconds: &'a dyn Fn() -> Option<f64>,
}

/// Measures every step of `profile` and gives the figures in order. Steps that cannot be are left
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
/// in random order, so that what changes with time changes for all of them. Gives what
/// [`run_profile`] does, for each target.
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

/// What has to hold all through a run, for it to count as one.
pub(crate) trait Condition {
    /// Whether the run goes on.
    fn holds(&self) -> bool;
}

/// Nothing but the clock ends a run.
pub(crate) struct Whole;

impl Condition for Whole {
    fn holds(&self) -> bool {
        true
    }
}

/// The runs of a method in every state, whichever driver takes them.
pub(crate) trait Driven {
    /// A load that goes on while something is done to the target.
    type Load;

    /// A number for each step in each state, those of a state together.
    fn steps(&self) -> usize;

    fn name(&self, number: usize) -> &str;

    /// Whether a step needs another run: as many as planned, and on until the interval is as narrow
    /// as asked for.
    fn wants_more(&self, number: usize) -> bool;

    fn is_interrupted(&self) -> bool;

    /// One run of a step. Tells whether `condition` held all through; a run that it cut to less
    /// than half counts as none.
    fn run_once(
        &mut self,
        number: usize,
        condition: &dyn Condition,
    ) -> impl Future<Output = Result<bool, RunError>>;

    /// Starts the load of a step, if of any.
    fn carry_on(
        &mut self,
        number: Option<usize>,
    ) -> impl Future<Output = Result<Option<Self::Load>, RunError>>;

    /// Ends it; requests that failed while a drive went are part of what is watched.
    fn end_load(
        &mut self,
        load: Option<Self::Load>,
        beside: &str,
    ) -> impl Future<Output = Result<(), RunError>>;

    fn note(&mut self, text: String);
}
