//! Drives that join, leave, fail, return and are replaced.

mod checksum_pages;
mod drives;
mod identity;
mod journal_losses;
mod losses;
mod metadata_copies;
mod power_cuts;
mod record_room;
mod replacement;
mod stacked_pools;
