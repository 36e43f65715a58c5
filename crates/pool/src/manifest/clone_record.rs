//! Clones of snapshots. A clone lives in the log of the volume that its snapshot is of, so it is in
//! that volume's record, and has no space of its own. Fault expected: any content.

use serde::{Deserialize, Serialize};

use crate::manifest::ids::VolumeId;
use crate::manifest::snapshot_path::SnapshotPath;

/// A volume that began as a snapshot of another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CloneRecord {
    pub id: VolumeId,
    pub name: String,
    pub size_bytes: u64,
    /// Number in its log; 0 is the first volume.
    pub head: u32,
    /// The snapshot, as `VOLUME@SNAPSHOT`; it cannot be deleted while the clone is there.
    pub of: String,
}

impl CloneRecord {
    /// The snapshot that it began as.
    pub(crate) fn path(&self) -> Option<SnapshotPath> {
        SnapshotPath::parse(&self.of)
    }
}
