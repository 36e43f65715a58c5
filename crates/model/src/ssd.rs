//! Solid-state drives: channels, dies, page mapping, garbage collection.
//!
//! [`SsdQueue`] is used as [`crate::hdd::HddQueue`] is: `submit`, `next_event_ns`, `advance`. Reads
//! go to the die that holds a page, writes to the next die in turn; each die, each channel and the
//! cable serve in order. Writes are acknowledged in the write cache while there is room. What a
//! write costs beyond its own pages is found by [`Ftl`], a page-mapped translation with greedy
//! garbage collection that is simulated on a sample of the pages, so that drives of any size take
//! the same memory. The drive ages as its pages are written: an empty one writes at full speed, one
//! that is full and written at random pays the amplification of its over-provisioning.
//!
//! The same parameters and seed give the same times. A drive has no faults of its own.

mod ftl;
mod parameters;
mod queue;

pub use ftl::{Ftl, Written};
pub use parameters::SsdParameters;
pub use queue::SsdQueue;
