//! Drives that join, leave, fail, return and are replaced.

mod checksum_pages;
mod copies_in_use;
mod cut_members;
mod destroyed;
mod drives;
mod identity;
mod journal_losses;
mod largest_sizes;
mod long_away;
mod losses;
mod metadata_copies;
mod new_identity;
mod power_cuts;
mod record_room;
mod released;
mod replacement;
mod room;
mod slices;
mod stacked_pools;
mod two_sessions;
