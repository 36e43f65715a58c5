//! The laboratory: workloads, the native driver, contents that can be checked, statistics, results
//! and reports.
//!
//! How each measurement is taken, and why, is in `docs/methods.md`.

#![warn(unreachable_pub)]

mod caches;
mod contents;
pub mod driver;
mod environment;
pub mod evaluate;
#[cfg(test)]
mod example;
pub mod files;
pub mod forms;
pub mod import;
pub mod lab_report;
mod load;
mod metered;
pub mod method;
pub mod record;
pub mod remarks;
mod report;
pub mod results;
pub mod scenario;
pub mod statistics;
pub mod store;
pub mod study;
mod sweep;
pub mod tables;
mod target;
#[cfg(test)]
mod testing;
mod workload;

pub use contents::{BLOCK_BYTES, Contents, DamagedPlace, Data, Verification};
pub use environment::Environment;
pub use load::{Beat, Load, LoadEnd, Pulse, Surroundings, Tally, Window, WindowLimits};
pub use metered::{MeteredDrive, Traffic};
pub use report::{Chart, report_html};
pub use sweep::{FillError, SweepOptions, fill, verify};
pub use target::{DriveTarget, Target};
pub use workload::{
    Access, Arrival, BlockShare, Choice, JobCursor, Pattern, Region, ResolvedWorkload, Workload,
    WorkloadError, random_stream,
};
