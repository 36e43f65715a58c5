//! Work in progress on a column of a row: filling (`jobs/rebuild.rs`) or migration
//! (`jobs/migration.rs`).

use std::collections::BTreeMap;

use crate::checksums::Pin;
use crate::rows::SlotPlace;

/// Progress of filling a column of a row, in memory.
pub(crate) struct Fill {
    pub place: SlotPlace,
    /// State of each region of the row: true once it is filled.
    pub done: Vec<bool>,
    /// Data was written that is not flushed yet.
    pub is_fresh: bool,
    /// Number of flushes that the drive had refused when the filling began.
    pub failures: u64,
    pub complete: bool,
    /// The column's checksum pages of the filled regions, until the column is complete: at most 0.3
    /// MiB.
    pub pages: BTreeMap<u64, Pin>,
}

impl Fill {
    /// True if the region of the row is current in the new slab.
    pub(crate) fn has(&self, region_in_row: u64) -> bool {
        self.complete || self.done[region_in_row as usize]
    }

    /// True if the whole column is filled.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// True if this fills the given place.
    pub(crate) fn is_of(&self, place: SlotPlace) -> bool {
        self.place.drive == place.drive && self.place.slab == place.slab
    }
}

/// A column migration in progress.
pub(crate) struct Migration {
    from: SlotPlace,
    to: SlotPlace,
    failed: bool,
    /// The new place is being recorded, and counts as soon as that is done. A write that it refuses
    /// from now on fails for the caller, and does not end the migration.
    is_being_recorded: bool,
}

impl Migration {
    pub(crate) fn new(from: SlotPlace, to: SlotPlace) -> Self {
        Self { from, to, failed: false, is_being_recorded: false }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Marks the new place as about to be recorded. `false`: it has failed, or is a different
    /// place.
    pub(crate) fn begin_recording(&mut self, to: SlotPlace) -> bool {
        self.is_being_recorded = self.target() == Some(to);
        self.is_being_recorded
    }

    /// Records that the new place, if it is this one, has refused a request.
    pub(crate) fn fail(&mut self, to: SlotPlace) {
        if self.to == to && !self.is_being_recorded {
            self.failed = true;
        }
    }

    /// Gives up because the drive of the new place is gone.
    pub(crate) fn give_up(&mut self) {
        self.failed = true;
    }

    /// The place that writes go to as well as the old one; `None` once it has failed.
    pub(crate) fn target(&self) -> Option<SlotPlace> {
        (!self.failed).then_some(self.to)
    }

    pub(crate) fn goes_to(&self, drive: u32) -> bool {
        self.to.drive == drive
    }

    pub(crate) fn is_from(&self, place: SlotPlace) -> bool {
        self.from == place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::SlotState;

    #[test]
    fn refusal_while_recording_does_not_end_migration() {
        let place = |drive| SlotPlace { drive, slab: 0, state: SlotState::Active };
        let mut migration = Migration::new(place(0), place(1));
        assert!(migration.begin_recording(place(1)));
        migration.fail(place(1));
        assert_eq!(migration.target(), Some(place(1)), "the new place must not miss a write");
        migration.give_up();
        assert_eq!(migration.target(), None);

        let mut migration = Migration::new(place(0), place(1));
        migration.fail(place(2));
        assert_eq!(migration.target(), Some(place(1)));
        migration.fail(place(1));
        assert!(!migration.begin_recording(place(1)), "the new place has missed a write");
    }
}
