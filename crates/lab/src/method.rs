//! Methods: what is measured, in which order, how often, and which statistic is the figure.
//!
//! A method that is only data is a profile, a TOML file: those of the laboratory are in
//! `profiles/`, users bring their own. How each differs from the tool that it is named after is in
//! `docs/methods.md`.

mod profile;
mod run;
mod validity;

pub use profile::{FileMethod, Profile, ProfileError, Statistic, Step, built_in, built_in_names};
pub(crate) use profile::{explain, parse_bytes, size_text};
pub(crate) use run::{Condition, Driven, Manner, Session, Whole, needs_more};
pub use run::{HookError, Observer, RunError, RunSettings, Runner, run_interleaved, run_profile};
pub(crate) use validity::judge_rounds;
pub use validity::{Circumstances, judge};
