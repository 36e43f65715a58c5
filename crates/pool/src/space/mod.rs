//! Slabs of the drives: what lies where, which are free, and where new rows go.

pub(crate) mod addresses;
pub(crate) mod evacuation;
pub(crate) mod free_slabs;
pub(crate) mod freed;
pub(crate) mod new_log;
pub(crate) mod new_slices;
pub(crate) mod new_volume;
pub(crate) mod placement;
pub(crate) mod slabs;
