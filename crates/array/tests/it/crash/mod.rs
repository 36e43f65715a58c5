//! Power cuts and refused flushes: flushed data survives.

mod dropped_repairs;
mod power_cut;
mod released_records;
mod skipped_rows;
mod spare_cuts;
mod unrecorded_repairs;
mod write_hole;
