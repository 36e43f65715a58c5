//! Power cuts and refused flushes: flushed data survives, and the pool opens again.

mod copies_after_cut;
mod journal_start;
mod log_cuts;
mod log_snapshots;
mod lost_blocks;
mod pool_cuts;
mod pool_random;
mod refused_flushes;
mod slices;
mod streams;
mod superblock_ends;
mod unreadable_journal;
