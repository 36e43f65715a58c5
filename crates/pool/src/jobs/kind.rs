//! The kinds of jobs of a pool.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Kind of job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// Fills replacements, brings returned drives up to date, and empties drives that are retired
    /// or replaced.
    Rebuild,
    /// Checks all data, and resyncs copies and parity after a crash.
    Scrub,
    /// Changes a volume's layout.
    Convert,
    /// Writes in place what only the journals hold.
    Destage,
    /// Moves rows between fast drives and data drives.
    Tier,
    /// Spreads rows over all data drives, so that free space becomes usable.
    Rebalance,
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Rebuild => "rebuild",
            Self::Scrub => "scrub",
            Self::Convert => "convert",
            Self::Destage => "destage",
            Self::Tier => "tier",
            Self::Rebalance => "rebalance",
        })
    }
}

impl FromStr for JobKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kinds = [Self::Rebuild, Self::Scrub, Self::Convert, Self::Destage, Self::Tier, Self::Rebalance];
        kinds.into_iter().find(|kind| kind.to_string() == text).ok_or_else(|| {
            format!("unknown job `{text}`; jobs: rebuild, scrub, convert, destage, tier, rebalance")
        })
    }
}
