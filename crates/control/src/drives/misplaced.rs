//! What is in the place of a drive of a pool.

use std::fmt;
use std::path::PathBuf;

use stripewise_engine::pool::{DriveId, PoolId};

/// A place where the list has a drive of the pool, and where something else is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misplaced {
    /// The place.
    pub path: PathBuf,
    /// What is there.
    pub holds: Holds,
}

/// What is in the place of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// No pool.
    Nothing,
    /// A drive of another pool.
    OtherPool { name: String, id: PoolId, drive: DriveId },
    /// A pool that this program does not read.
    OtherFormat(String),
}

impl fmt::Display for Holds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("holds no pool"),
            Self::OtherPool { name, id, .. } => write!(f, "holds a drive of pool {name} ({id})"),
            Self::OtherFormat(what) => f.write_str(what),
        }
    }
}
