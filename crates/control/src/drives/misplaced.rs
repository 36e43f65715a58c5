//! Unexpected contents at the registered path of a pool's drive.

use std::fmt;
use std::path::PathBuf;

use stripewise_pool::{DriveId, PoolId};

/// A registered path of a drive that holds something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misplaced {
    /// The path.
    pub path: PathBuf,
    /// Its contents.
    pub holds: Holds,
}

/// Contents found in place of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// No pool.
    Nothing,
    /// A drive of another pool.
    OtherPool { name: String, id: PoolId, drive: DriveId },
    /// A pool in a format that this version cannot read, with the error text.
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
