//! Jobs in the background: rebuild, scrub, conversion, rebalancing, evacuation, tiering.

mod conversion;
mod conversion_random;
mod evacuation;
mod log_rebuild;
mod log_scrub;
mod many_lost_blocks;
mod rebalance;
mod rebuild;
mod rebuild_speed;
mod schedules;
mod slice_conversion;
mod tiers;
