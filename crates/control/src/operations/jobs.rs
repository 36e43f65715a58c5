//! Jobs of pools: begun, stopped, waited for.

pub mod rebalance;
pub mod scrub;
pub mod wait;
