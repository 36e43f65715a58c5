//! Records for the administrator of a pool: scrubs with their findings, and spare allocations.
//! Drives are recorded by number, so that a changed path does not matter; all records are bounded.

use serde::{Deserialize, Serialize};

use crate::manifest::ids::DriveId;

/// Maximum number of drives with wrong blocks recorded per volume; the blocks of further drives are
/// counted together.
pub(crate) const MAX_BLAMED: usize = 16;
/// Maximum number of spare allocations kept; the oldest are dropped.
pub(crate) const MAX_TAKEOVERS: usize = 32;

fn is_none(count: &u64) -> bool {
    *count == 0
}

/// Recorded findings of a scrub of one volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ScrubRecord {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub volume: String,
    #[serde(skip_serializing_if = "is_none")]
    pub checked_bytes: u64,
    /// Drive numbers with their wrong blocks; `None`: all further drives together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blamed: Vec<(Option<u32>, u64)>,
    #[serde(skip_serializing_if = "is_none")]
    pub unattributed_blocks: u64,
    #[serde(skip_serializing_if = "is_none")]
    pub unreadable_strips: u64,
    #[serde(skip_serializing_if = "is_none")]
    pub regions_without_redundancy: u64,
    #[serde(skip_serializing_if = "is_none")]
    pub checksum_errors: u64,
    #[serde(skip_serializing_if = "is_none")]
    pub pages_repaired: u64,
    #[serde(skip_serializing_if = "is_none")]
    pub pages_lost: u64,
    #[serde(skip_serializing_if = "is_none")]
    pub sums_recorded: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl ScrubRecord {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// True if the record, as read from a drive, is within its bounds.
    pub(crate) fn is_bounded(&self) -> bool {
        self.blamed.len() <= MAX_BLAMED + 1
    }
}

/// The last completed scrub, all volumes together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastScrub {
    /// Time of the request, seconds since 1970.
    pub began_unix_s: u64,
    /// Time of the end, seconds since 1970.
    pub ended_unix_s: u64,
    /// Number of volumes scrubbed.
    pub volumes: u64,
    /// Bytes read and compared.
    pub checked_bytes: u64,
    /// Blocks of 4 KiB that were wrong on an identified drive and were repaired.
    pub repaired_blocks: u64,
    /// Blocks that disagreed where the layout cannot identify the wrong copy; now consistent.
    pub unattributed_blocks: u64,
    /// Strips that could be neither read nor reconstructed.
    pub unreadable_strips: u64,
    /// Number of volumes whose scrub ended early.
    pub cut_short: u64,
    /// Total of wrong blocks counted on drives, however found, when the scrub ended.
    pub counted_before: u64,
}

impl LastScrub {
    /// True if the scrub found no errors and was complete.
    pub fn is_clean(&self) -> bool {
        let Self { repaired_blocks, unattributed_blocks, unreadable_strips, cut_short, .. } = *self;
        [repaired_blocks, unattributed_blocks, unreadable_strips, cut_short] == [0; 4]
    }
}

/// A spare allocation: a spare took the place of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Takeover {
    pub unix_s: u64,
    pub drive: DriveId,
    pub path: String,
    pub spare: DriveId,
    pub spare_path: String,
}

/// Records that are shown to the administrator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Care {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_scrub: Option<LastScrub>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub takeovers: Vec<Takeover>,
}

impl Care {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn note_takeover(&mut self, takeover: Takeover) {
        if self.takeovers.len() >= MAX_TAKEOVERS {
            self.takeovers.remove(0);
        }
        self.takeovers.push(takeover);
    }
}
