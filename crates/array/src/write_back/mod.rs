//! Write-back of one array: pending writes, and the admission of further ones.

pub(crate) mod admission;
pub(crate) mod destage;
pub(crate) mod destage_round;
pub(crate) mod pending;
mod room;

use std::cell::Cell;

use stripewise_layout::Geometry;

use crate::columns::write_policy::{LONGEST_DEFERRED_ON_DISKS_BYTES, WritePolicy};
use crate::write_back::admission::Admission;
use crate::write_back::pending::Pending;

/// Writes that are acknowledged before they are in place.
pub(crate) struct Deferred {
    /// True if partial stripes are acknowledged from the journal.
    pub is_on: bool,
    pub pending: Pending,
    /// True while the destaging task runs.
    pub is_destaging: Cell<bool>,
    pub admission: Admission,
}

impl Deferred {
    /// Limits pending data to `pending_bytes`, but at least to the largest request that may be
    /// deferred.
    pub(crate) fn new(is_on: bool, pending_bytes: u64) -> Self {
        Self {
            is_on,
            pending: Pending::new(pending_bytes.max(LONGEST_DEFERRED_ON_DISKS_BYTES)),
            is_destaging: Cell::new(false),
            admission: Admission::new(),
        }
    }

    /// True if a request may be acknowledged from the journal.
    pub(crate) fn admits(&self, bytes: u64, geometry: &Geometry, policy: WritePolicy) -> bool {
        self.is_on && bytes <= policy.longest_deferred_bytes() && geometry.parity_units() > 0
    }
}
