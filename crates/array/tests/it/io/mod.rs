//! Reads and writes of an array: correctness under faults, and its drive queues.

mod checksums;
mod contention;
mod failures;
mod model_check;
mod queue;
