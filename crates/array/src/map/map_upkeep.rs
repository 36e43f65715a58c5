//! Places of the region map, and the tasks that maintain it: marking regions as written, and
//! clearing write-intent bits of idle chunks.

use std::cell::{Cell, RefCell};

use crate::array::spec::AreaPlace;
use crate::sync::one_at_a_time::OneAtATime;

/// Map places and upkeep tasks of one array.
pub(crate) struct MapUpkeep {
    /// Places of the map, all with the same contents.
    pub places: RefCell<Vec<AreaPlace>>,
    /// True while write-intent bits are being cleared.
    pub is_clearing_intents: Cell<bool>,
    /// Serialises the tasks that make new regions durable, so that the map can record them.
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
