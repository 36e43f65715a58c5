//! Power cuts and refused flushes: flushed data survives, and the pool opens again.

mod copies_after_cut;
mod journal_start;
mod lost_blocks;
mod pool_cuts;
mod pool_random;
mod power_cut;
mod refused_flushes;
mod released_records;
mod skipped_rows;
mod spare_cuts;
mod superblock_ends;
mod unreadable_journal;
mod unrecorded_repairs;
mod write_hole;
