//! Names of snapshots in a pool. The record of the pool does not have them; the logs do.

use std::fmt;

/// Volume and snapshot, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotPath {
    /// The volume.
    pub volume: String,
    /// The snapshot's own name.
    pub snapshot: String,
}

impl SnapshotPath {
    /// Reads `VOLUME@SNAPSHOT`; `None` for the name of a volume.
    pub fn parse(text: &str) -> Option<Self> {
        let (volume, snapshot) = text.split_once('@')?;
        Some(Self { volume: volume.to_owned(), snapshot: snapshot.to_owned() })
    }
}

impl fmt::Display for SnapshotPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.volume, self.snapshot)
    }
}
