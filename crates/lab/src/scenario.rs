//! Scenarios: repeated measurements while the state of the target changes.
//!
//! The one scenario takes any redundant storage through its states: normal, degraded, rebuilding,
//! recovered. The system's [`Hooks`] fail and replace a drive: the user's commands for any system,
//! the engine's own functions for the arrays of `evaluate`. The offered load is the same in all
//! states. The caller receives each state and hook ([`Event`]), for a timeline or for progress.

mod commands;
mod failure;
mod timeline;

use std::future::Future;

use crate::records::results::State;

pub use commands::{CommandHooks, HookFile};
pub use failure::run_failure;
pub(crate) use failure::{prefixes, through, watched};
pub use timeline::{Marker, Timeline};

/// Actions on a target on its way through the states. Errors give the failed action and the reason.
pub trait Hooks {
    /// Fails a drive.
    fn fail(&self) -> impl Future<Output = Result<(), String>>;

    /// Replaces the failed drive.
    fn replace(&self) -> impl Future<Output = Result<(), String>>;

    /// True once the array is redundant again; polled until then. It may wait for the answer.
    fn is_rebuilt(&self) -> impl Future<Output = Result<bool, String>>;

    /// Poll interval in nanoseconds.
    fn every_ns(&self) -> u64;

    /// Maximum duration of a rebuild in nanoseconds.
    fn rebuild_limit_ns(&self) -> u64;

    /// True if the current rebuild will probably last as long as another run; the duration of a run
    /// is known after the first of a step.
    fn outlasts(&self, _run_ns: Option<u64>) -> bool {
        true
    }
}

/// Course of a scenario, as far as systems differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    /// States to measure, in the order of [`State::FAILURE`].
    pub(crate) states: &'static [State],
    /// Step whose load continues while a drive fails.
    pub(crate) beside_failing: usize,
    /// Step whose load continues from the replacement of a drive until the end of its rebuild.
    pub(crate) beside_replacing: Option<usize>,
    /// If true, one drive after another is failed and replaced until every run was taken during a
    /// rebuild. Otherwise there is one rebuild, with rounds of runs as long as it lasts.
    pub(crate) repeats: bool,
}

/// An event of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The runs in a state begin.
    Begins(State),
    /// The runs in the state are complete.
    Over,
    /// A hook starts.
    Calls(&'static str),
    /// The hook has ended.
    Called(&'static str),
    /// All runs of this rebuild are complete.
    Rests,
    /// The array is redundant again.
    Rebuilt,
}
