//! Records of volumes that were received as streams, or are being received (`stream/receive.rs`).
//! Fault expected: any content.

use serde::{Deserialize, Serialize};

use crate::manifest::ids::Id;

/// The snapshot that a volume received last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReceivedRecord {
    /// Identity of the snapshot in its source, as streams have it.
    pub snapshot_id: Id,
    /// Number of the volume's own snapshot with the same contents.
    pub number: u32,
}

/// A stream that a volume has received in part. The volume is not served until it has all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReceivingRecord {
    /// Identity of the snapshot in its source.
    pub snapshot_id: Id,
    /// Its name.
    pub snapshot: String,
    /// Name of the volume's own snapshot that the stream builds on; left out for a full one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
}
