//! Where the region map lies, and the tasks that keep it up: marking regions as written, and taking
//! back write-intent bits of chunks that are quiet.

use std::cell::{Cell, RefCell};

use crate::array::spec::AreaPlace;
use crate::sync::one_at_a_time::OneAtATime;

/// Of one array.
pub(crate) struct MapUpkeep {
    /// The map is the same at each of them.
    pub places: RefCell<Vec<AreaPlace>>,
    /// Write-intent bits are being cleared.
    pub is_clearing_intents: Cell<bool>,
    /// New regions are made durable, to have the map say so, by one task at a time.
    pub marking: OneAtATime,
}

impl MapUpkeep {
    pub(crate) fn new(places: Vec<AreaPlace>) -> Self {
        Self {
            places: RefCell::new(places),
            is_clearing_intents: Cell::new(false),
            marking: OneAtATime::default(),
        }
    }
}
