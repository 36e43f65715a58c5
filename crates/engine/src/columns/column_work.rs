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
    pub from: SlotPlace,
    pub to: SlotPlace,
    pub failed: bool,
}

impl Migration {
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
