//! What is being done to a column of a row: it is filled (`jobs/rebuild.rs`), or migrated
//! (`jobs/migration.rs`).

use std::collections::BTreeMap;

use crate::checksums::Pin;
use crate::rows::SlotPlace;

/// How far the filling of a column of a row has come, in memory.
pub(crate) struct Fill {
    pub place: SlotPlace,
    /// Regions of the row that are done.
    pub done: Vec<bool>,
    /// Something was written that was not flushed yet.
    pub is_fresh: bool,
    /// Flushes that the drive had refused when the filling began.
    pub failures: u64,
    pub complete: bool,
    /// The column's checksum pages of the regions that are done, until it is complete: at most 0.3
    /// MiB.
    pub pages: BTreeMap<u64, Pin>,
}

impl Fill {
    /// Whether the region of the row is current in the new slab.
    pub(crate) fn has(&self, region_in_row: u64) -> bool {
        self.complete || self.done[region_in_row as usize]
    }

    /// Whether all of it is there.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether it is the filling of this place.
    pub(crate) fn is_of(&self, place: SlotPlace) -> bool {
        self.place.drive == place.drive && self.place.slab == place.slab
    }
}

/// A column migration under way.
pub(crate) struct Migration {
    from: SlotPlace,
    to: SlotPlace,
    failed: bool,
    /// The new place is being recorded: it counts as soon as that is done, so what it refuses from
    /// now on is refused to who asked, and does not end the migration.
    is_being_recorded: bool,
}

impl Migration {
    pub(crate) fn new(from: SlotPlace, to: SlotPlace) -> Self {
        Self { from, to, failed: false, is_being_recorded: false }
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// The new place is about to be recorded. `false`: it has failed, or is another one.
    pub(crate) fn begin_recording(&mut self, to: SlotPlace) -> bool {
        self.is_being_recorded = self.target() == Some(to);
        self.is_being_recorded
    }

    /// The new place, if it is this one, has refused something.
    pub(crate) fn fail(&mut self, to: SlotPlace) {
        if self.to == to && !self.is_being_recorded {
            self.failed = true;
        }
    }

    /// The drive of the new place is gone.
    pub(crate) fn give_up(&mut self) {
        self.failed = true;
    }

    /// Where writes go besides the old place; nowhere once the new place has failed.
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
        assert_eq!(migration.target(), Some(place(1)), "it would miss what is written until it counts");
        migration.give_up();
        assert_eq!(migration.target(), None);

        let mut migration = Migration::new(place(0), place(1));
        migration.fail(place(2));
        assert_eq!(migration.target(), Some(place(1)));
        migration.fail(place(1));
        assert!(!migration.begin_recording(place(1)), "it has missed something");
    }
}
