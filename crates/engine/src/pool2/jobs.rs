//! Jobs of a pool: the place where they will run.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::ids::Id;
use super::status::Activity;
use super::{Inner, Pool};
use crate::array::Array;
use crate::scrub::ScrubReport;

/// What kind of job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// Filling replacements.
    Rebuild,
    /// Checking everything, and making copies and parity agree after a crash.
    Scrub,
    /// Changing a volume's layout; none yet.
    Convert,
    /// Emptying a journal; none yet.
    Destage,
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Rebuild => "rebuild",
            Self::Scrub => "scrub",
            Self::Convert => "convert",
            Self::Destage => "destage",
        })
    }
}

impl FromStr for JobKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kinds = [Self::Rebuild, Self::Scrub, Self::Convert, Self::Destage];
        kinds
            .into_iter()
            .find(|kind| kind.to_string() == text)
            .ok_or_else(|| format!("`{text}` is no job; there are rebuild, scrub, convert and destage"))
    }
}

/// What a scrub of one volume found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubSummary {
    /// The volume.
    pub volume: String,
    /// What was found and done.
    pub report: ScrubReport,
    /// Why it ended early, if it did.
    pub error: Option<String>,
}

#[derive(Default)]
pub(crate) struct Jobs {}

impl Jobs {
    /// Ends when no job is under way.
    pub async fn until_idle(&self) {}

    /// Ends when no job is at work on the array.
    pub async fn until_off(&self, part: Id) {
        let _ = part;
    }
}

impl Pool {
    /// Begins all jobs that are due.
    pub fn start_jobs(&self) {
        self.0.kick_jobs();
    }
}

impl Inner {
    /// A drive was excluded, or a spare came: somebody may have to take over.
    pub(super) fn after_exclusion(&self) {
        self.kick_jobs();
    }

    /// Starts jobs that are due, if jobs run in this pool.
    pub(super) fn kick_jobs(&self) {}

    /// Jobs under way or due.
    pub(super) fn activity(&self) -> Vec<Activity> {
        Vec::new()
    }
}

/// Whether a crash left something to compare, and all of it is there.
pub(super) fn is_resync_due(array: &Array) -> bool {
    array.needs_resync() && array.lacking_rows().is_empty() && !array.is_protected()
}
