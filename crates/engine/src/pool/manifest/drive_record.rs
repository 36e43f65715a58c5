//! What a pool records of each of its drives.

use serde::{Deserialize, Serialize};

use crate::pool::manifest::ids::Id;
use crate::pool::space::addresses;

/// Longest text kept of a path or a reason, bytes.
const MAX_TEXT_BYTES: usize = 200;

/// What a drive is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Holds volumes.
    Data,
    /// Waits for a data drive to fail.
    Spare,
    /// Holds journals only.
    Journal,
    /// Holds what is often asked for.
    Fast,
}

/// Why a drive is left out: what it can be used for when it is there again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExclusionKind {
    /// It was not there.
    Missing,
    /// It gave errors, or no answer.
    Failed,
    /// Somebody took it offline.
    Offline,
}

/// Whether a drive takes part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Standing {
    /// Every commit reaches it.
    Online,
    /// Commits go on without it: what it holds is current only where a volume's map still says so.
    Excluded { reason: String, kind: ExclusionKind },
}

/// Errors of a drive since it belongs to the pool.
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
    /// What rows call the drive; never used again for another.
    pub number: u32,
    pub id: Id,
    /// Where it was last seen.
    pub path: String,
    pub role: Role,
    pub standing: Standing,
    /// To be emptied: nothing new is put on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retiring: bool,
    /// As it was taken in, even if it has grown since: everything on it lies accordingly.
    pub capacity_bytes: u64,
    #[serde(default)]
    pub errors: Errors,
    /// While it is left out: the generation of the last commit that it is known to have. Left out
    /// where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub had: Option<u64>,
    /// The number of the drive that is to have its place. All that it holds moves there while both
    /// take part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successor: Option<u32>,
    /// Another has taken its place; the record stays while a volume that cannot be rebuilt still
    /// speaks of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replaced: bool,
}

impl DriveRecord {
    pub(crate) fn is_online(&self) -> bool {
        self.standing == Standing::Online
    }

    /// Why it is left out, if it is.
    pub(crate) fn exclusion(&self) -> Option<ExclusionKind> {
        match self.standing {
            Standing::Online => None,
            Standing::Excluded { kind, .. } => Some(kind),
        }
    }

    /// Whether nobody expects a drive that is out to come back with what it had.
    pub(in crate::pool) fn is_given_up(&self) -> bool {
        match self.exclusion() {
            None => false,
            Some(ExclusionKind::Offline) => self.replaced,
            Some(ExclusionKind::Missing | ExclusionKind::Failed) => true,
        }
    }

    /// Whether new rows, journals and maps may be put on it.
    pub(crate) fn takes_new(&self) -> bool {
        self.is_online() && !self.retiring && !self.replaced
    }

    /// Whether all that it holds is to move elsewhere.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_online() && (self.retiring || self.successor.is_some())
    }

    /// How many slabs it has.
    pub(crate) fn slab_count(&self, slab_bytes: u64) -> u32 {
        addresses::slab_count(self.capacity_bytes, slab_bytes)
    }
}

/// A drive that is to be left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exclusion {
    pub drive: u32,
    pub reason: String,
    pub kind: ExclusionKind,
}

/// At most 200 bytes of a text, its end rather than its start: of a path that is what tells drives
/// apart.
pub(crate) fn shortened(text: &str) -> String {
    if text.len() <= MAX_TEXT_BYTES {
        return text.to_owned();
    }
    let start = (text.len() - MAX_TEXT_BYTES..text.len()).find(|&at| text.is_char_boundary(at));
    format!("…{}", &text[start.unwrap_or(text.len())..])
}
