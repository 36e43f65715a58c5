//! The kinds of jobs of a pool.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What kind of job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// Filling replacements, catching up, emptying drives that retire or are replaced.
    Rebuild,
    /// Checking everything, and making copies and parity agree after a crash.
    Scrub,
    /// Changing a volume's layout.
    Convert,
    /// Putting in place what is only in journals.
    Destage,
    /// Moving rows between fast and data drives.
    Tier,
    /// Spreading rows over all data drives, so that free space can be used.
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
            format!("`{text}` is no job; there are rebuild, scrub, convert, destage, tier and rebalance")
        })
    }
}
