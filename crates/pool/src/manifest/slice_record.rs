//! The record of a slice: one of several parts that a volume's extents go to in turn.

use serde::{Deserialize, Serialize};
use stripewise_layout::Slicing;

/// Most slices of a volume.
pub const MOST_SLICES: u32 = 8;

/// Place of a part among the slices of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SliceRecord {
    /// Counted from 0.
    pub number: u32,
    /// Number of slices, more than one.
    pub of: u32,
    /// Size of the extents that go to the slices in turn.
    pub extent_bytes: u64,
}

impl SliceRecord {
    /// Addresses of the slices.
    pub(crate) fn slicing(&self) -> Slicing {
        Slicing::new(self.of as usize, self.extent_bytes)
    }
}
