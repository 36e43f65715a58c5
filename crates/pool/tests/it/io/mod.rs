//! Reads and writes of a volume: correctness, progress, and what they cost.

mod bursts;
mod clones;
mod extents;
mod full_file_system;
mod load_counters;
mod logs;
mod progress;
mod request_sizes;
mod seeks;
mod shard_messages;
mod slices;
pub mod snapshots;
pub mod streams;
mod volumes;
mod write_back;
