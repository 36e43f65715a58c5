//! Commands on a pool's jobs.

pub(crate) mod rebalance;
pub(crate) mod scrub;
pub(crate) mod wait;
