//! Reads and writes of a volume: correctness, progress, and what they cost.

mod bursts;
mod checksums;
mod contention;
mod extents;
mod failures;
mod full_file_system;
mod load_counters;
mod model_check;
mod progress;
mod queue;
mod request_sizes;
mod seeks;
mod volumes;
mod write_back;
