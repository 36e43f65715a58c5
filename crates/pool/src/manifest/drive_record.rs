//! Records of the drives of a pool.

use serde::{Deserialize, Serialize};

use crate::manifest::ids::Id;
use crate::space::addresses;

/// Maximum length of a recorded path or reason, bytes.
pub const MAX_PATH_BYTES: usize = 200;

/// Purpose of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Holds data of volumes.
    Data,
    /// Stands by to take the place of a failed data drive.
    Spare,
    /// Holds journals only.
    Journal,
    /// Holds frequently used data.
    Fast,
}

/// Reason for an exclusion; it decides what the drive may be used for when it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExclusionKind {
    /// The drive was missing.
    Missing,
    /// The drive reported errors, or did not respond.
    Failed,
    /// The drive was taken offline by command.
    Offline,
}

/// State of a drive in its pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Standing {
    /// Takes part in every commit.
    Online,
    /// Commits go on without it: its data is current only where a volume's map still says so.
    Excluded { reason: String, kind: ExclusionKind },
}

/// Errors of a drive since it was added to the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Errors {
    pub read: u64,
    pub write: u64,
    pub checksum: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DriveRecord {
    /// Number by which rows refer to the drive; never reused for another.
    pub number: u32,
    pub id: Id,
    /// Path at which it was last seen.
    pub path: String,
    pub role: Role,
    pub standing: Standing,
    /// To be emptied: nothing new is placed on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retiring: bool,
    /// Capacity when it was added, bytes, even if it has grown since: the layout of the drive
    /// depends on it.
    pub capacity_bytes: u64,
    #[serde(default)]
    pub errors: Errors,
    /// While it is excluded: the generation of the last commit that it is known to have; omitted if
    /// unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub had: Option<u64>,
    /// Number of the drive that is to take its place. All its contents move there while both are
    /// online.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successor: Option<u32>,
    /// Another drive has taken its place. The record stays while a volume that cannot be rebuilt
    /// still refers to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replaced: bool,
}

impl DriveRecord {
    pub(crate) fn is_online(&self) -> bool {
        self.standing == Standing::Online
    }

    /// Reason for the exclusion, if the drive is excluded.
    pub(crate) fn exclusion(&self) -> Option<ExclusionKind> {
        match self.standing {
            Standing::Online => None,
            Standing::Excluded { kind, .. } => Some(kind),
        }
    }

    /// True for an excluded drive that is not expected to return with its data.
    pub(crate) fn is_given_up(&self) -> bool {
        match self.exclusion() {
            None => false,
            Some(ExclusionKind::Offline) => self.replaced,
            Some(ExclusionKind::Missing | ExclusionKind::Failed) => true,
        }
    }

    /// True if new rows, journals and maps may be placed on it.
    pub(crate) fn takes_new(&self) -> bool {
        self.is_online() && !self.retiring && !self.replaced
    }

    /// True if all its contents are to move elsewhere.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_online() && (self.retiring || self.successor.is_some())
    }

    /// Number of slabs on the drive.
    pub(crate) fn slab_count(&self, slab_bytes: u64) -> u32 {
        addresses::slab_count(self.capacity_bytes, slab_bytes)
    }
}

/// An exclusion that is to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exclusion {
    pub drive: u32,
    pub reason: String,
    pub kind: ExclusionKind,
}

/// Shortens a text to at most 200 bytes, keeping its end: the end of a path is what distinguishes
/// drives.
pub(crate) fn shortened(text: &str) -> String {
    if text.len() <= MAX_PATH_BYTES {
        return text.to_owned();
    }
    let start = (text.len() - MAX_PATH_BYTES..text.len()).find(|&at| text.is_char_boundary(at));
    format!("…{}", &text[start.unwrap_or(text.len())..])
}
