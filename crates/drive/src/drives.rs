//! Drives: in memory, modelled, held to a pace, failing, losing power, checking the engine; and
//! what they share.

pub(crate) mod checked;
pub(crate) mod crash;
pub(crate) mod fault;
pub(crate) mod memory;
pub(crate) mod model;
pub(crate) mod null;
pub(crate) mod pace;
pub(crate) mod paced;
pub(crate) mod packed;
pub(crate) mod ranges;
pub(crate) mod timing;
