//! Write-back of one array: what is pending, and whether more may be.

pub(crate) mod admission;
pub(crate) mod destage;
pub(crate) mod destage_round;
pub(crate) mod pending;
mod room;

use std::cell::Cell;

use stripewise_layout::Geometry;

use crate::write_back::admission::Admission;
use crate::write_back::pending::{LARGEST_DEFERRED_BYTES, LARGEST_ON_DISKS_BYTES, Pending};

/// Writes that are acknowledged before they are in place.
pub(crate) struct Deferred {
    /// Partial stripes are acknowledged when the journal has them.
    pub is_on: bool,
    pub pending: Pending,
    /// The task that destages runs.
    pub is_destaging: Cell<bool>,
    pub admission: Admission,
}

impl Deferred {
    /// At most so many bytes pending; never less than the largest request that may be deferred.
    pub(crate) fn new(is_on: bool, pending_bytes: u64) -> Self {
        Self {
            is_on,
            pending: Pending::new(pending_bytes.max(LARGEST_ON_DISKS_BYTES)),
            is_destaging: Cell::new(false),
            admission: Admission::new(),
        }
    }
    /// Whether a request may be acknowledged from the journal.
    pub(crate) fn admits(&self, bytes: u64, geometry: &Geometry, has_dear_positions: bool) -> bool {
        let longest = if has_dear_positions { LARGEST_ON_DISKS_BYTES } else { LARGEST_DEFERRED_BYTES };
        self.is_on && bytes <= longest && geometry.parity_units() > 0
    }
}
