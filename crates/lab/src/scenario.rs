//! Scenarios: a method measured again and again while something becomes of the target.
//!
//! The one that there is takes any redundant storage through its states: normal, degraded,
//! rebuilding, recovered. What fails a drive and gives another is the user's ([`Hooks`]): commands
//! of any system. The offered load is the same in all states, and goes on while the hooks work;
//! bandwidth over the whole time is kept with markers.

mod commands;
mod failure;
mod timeline;

use std::future::Future;

pub use commands::{CommandHooks, HookFile};
pub use failure::run_failure;
pub(crate) use failure::{Driven, STEP_NS, prefixes, through_failure};
pub(crate) use timeline::Watch;
pub use timeline::{Marker, Timeline};

/// What is done to a target on its way through the states. Errors say what failed and why.
pub trait Hooks {
    /// Takes a drive away.
    fn fail(&self) -> impl Future<Output = Result<(), String>>;

    /// Gives another in its place.
    fn replace(&self) -> impl Future<Output = Result<(), String>>;

    /// Whether the array is whole again; asked again and again.
    fn is_rebuilt(&self) -> impl Future<Output = Result<bool, String>>;

    /// Nanoseconds from one question to the next.
    fn every_ns(&self) -> u64;

    /// The longest that a rebuild may take, in nanoseconds.
    fn rebuild_limit_ns(&self) -> u64;
}
