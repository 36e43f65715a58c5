//! Loads and what they run against: workloads, the native driver and other programs, blocks and
//! files, contents that can be checked.

pub(crate) mod caches;
pub(crate) mod contents;
pub mod driver;
pub mod files;
pub(crate) mod load;
pub(crate) mod metered;
pub(crate) mod scratch;
pub(crate) mod sweep;
pub(crate) mod target;
pub(crate) mod workload;
