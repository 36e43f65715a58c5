//! Scenarios: a method measured again and again while something becomes of the target.
//!
//! The one that there is takes any redundant storage through its states: normal, degraded,
//! rebuilding, recovered. What fails a drive and gives another are the system's [`Hooks`]: commands
//! of the user's for any system, the engine's own for the arrays of `evaluate`. The offered load is
//! the same in all states. The caller is told of each state and hook ([`Event`]), for a timeline or
//! for progress.

mod commands;
mod failure;
mod timeline;

use std::future::Future;

use crate::records::results::State;

pub use commands::{CommandHooks, HookFile};
pub use failure::run_failure;
pub(crate) use failure::{prefixes, through, watched};
pub use timeline::{Marker, Timeline};

/// What is done to a target on its way through the states. Errors say what failed and why.
pub trait Hooks {
    /// Takes a drive away.
    fn fail(&self) -> impl Future<Output = Result<(), String>>;

    /// Gives another in its place.
    fn replace(&self) -> impl Future<Output = Result<(), String>>;

    /// Whether the array is whole again; asked again and again until it is. It may wait to know.
    fn is_rebuilt(&self) -> impl Future<Output = Result<bool, String>>;

    /// Nanoseconds from one question to the next.
    fn every_ns(&self) -> u64;

    /// The longest that a rebuild may take, in nanoseconds.
    fn rebuild_limit_ns(&self) -> u64;

    /// Whether the rebuild under way will probably last as long as another run, of which the time
    /// is known after the first of a step.
    fn outlasts(&self, _run_ns: Option<u64>) -> bool {
        true
    }
}

/// How a scenario goes, where systems differ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    /// What is gone through, in the order of [`State::FAILURE`].
    pub(crate) states: &'static [State],
    /// The step whose load goes on while a drive fails.
    pub(crate) beside_failing: usize,
    /// The step whose load goes on while a drive is replaced, and until its rebuild has ended.
    pub(crate) beside_replacing: Option<usize>,
    /// Whether one drive after the other is failed and replaced until every run was taken while one
    /// was rebuilt. Otherwise there is one rebuild, and rounds of runs as long as it lasts.
    pub(crate) repeats: bool,
}

/// What happens in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The runs in a state begin,
    Begins(State),
    /// and have been taken.
    Over,
    /// A hook begins to work,
    Calls(&'static str),
    /// and has ended.
    Called(&'static str),
    /// All runs of this rebuild have been taken.
    Rests,
    /// The array is whole again.
    Rebuilt,
}
