//! What is recorded for the person who looks after a pool: scrubs and their findings, and that a
//! spare stood in for a drive. Drives are recorded by number, so that a path that changes does not
//! matter, and all of it is bounded.

use serde::{Deserialize, Serialize};

use crate::pool::manifest::ids::DriveId;

/// Drives with wrong blocks that are recorded for each volume; the blocks of others are counted
/// together.
pub(crate) const MAX_BLAMED: usize = 16;
/// Takeovers that are remembered; the oldest are forgotten.
pub(crate) const MAX_TAKEOVERS: usize = 32;

fn is_none(count: &u64) -> bool {
    *count == 0
}

/// What a scrub found on a volume, as it is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ScrubRecord {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub volume: String,
    #[serde(skip_serializing_if = "is_none")]
    pub checked_bytes: u64,
    /// Numbers of drives, and their wrong blocks; no number: of all others.
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

    /// Whether it can be, as read from a drive.
    pub(crate) fn is_bounded(&self) -> bool {
        self.blamed.len() <= MAX_BLAMED + 1
    }
}

/// The last scrub that ended, all volumes together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastScrub {
    /// When it was asked for, seconds since 1970.
    pub began_unix_s: u64,
    /// When it ended.
    pub ended_unix_s: u64,
    /// Volumes that were looked at.
    pub volumes: u64,
    /// Bytes read and compared.
    pub checked_bytes: u64,
    /// Blocks of 4 KiB found wrong on a known drive, and repaired.
    pub repaired_blocks: u64,
    /// Blocks that disagreed where the layout cannot tell which copy was right; made to agree.
    pub unattributed_blocks: u64,
    /// Strips that could be neither read nor reconstructed.
    pub unreadable_strips: u64,
    /// Volumes whose check ended early.
    pub cut_short: u64,
    /// Blocks found wrong on drives by whatever means, as they were counted when it ended.
    pub counted_before: u64,
}

impl LastScrub {
    /// Whether nothing was wrong anywhere.
    pub fn is_clean(&self) -> bool {
        let Self { repaired_blocks, unattributed_blocks, unreadable_strips, cut_short, .. } = *self;
        [repaired_blocks, unattributed_blocks, unreadable_strips, cut_short] == [0; 4]
    }
}

/// A spare took the place of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Takeover {
    pub unix_s: u64,
    pub drive: DriveId,
    pub path: String,
    pub spare: DriveId,
    pub spare_path: String,
}

/// What a person is to be told.
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
