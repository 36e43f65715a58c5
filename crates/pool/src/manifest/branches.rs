//! The branches of a pool's history, and moments on them. Plain data; `ancestry.rs` evaluates them.

use serde::{Deserialize, Serialize};

use crate::manifest::ids::Id;

/// The last branches; older ones are kept only where a drive may have no later one.
pub(crate) const MAX_BRANCHES: usize = 128;
/// Older branches that are kept.
pub(crate) const MAX_OLD_BRANCHES: usize = 128;

/// One line of the pool's descent: it is lived on from this generation on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Branch {
    pub id: Id,
    pub generation: u64,
    /// Nothing was done yet on the strength of it by the holder of this: not every drive that takes
    /// part may have heard of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tentative: bool,
}

/// A moment of a pool's history: a branch and a number of commits on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    pub branch: Id,
    pub generation: u64,
}

/// A branch that is none of the last ones any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OldBranch {
    pub id: Id,
    /// Its first commit, or the one before.
    pub generation: u64,
    /// The last commit of it in this history.
    pub last_generation: u64,
}

impl OldBranch {
    /// True if the commit of this number is on the branch.
    pub(crate) fn has(&self, generation: u64) -> bool {
        (self.generation..=self.last_generation).contains(&generation)
    }
}
