//! The laboratory: workloads, the native driver, contents that can be checked, statistics, results and reports.
//!
//! How each measurement is taken, and why, is in `docs/methods.md`.

mod contents;
mod load;
mod metered;
mod sweep;
mod target;
#[cfg(test)]
mod testing;
mod workload;

pub use contents::{BLOCK_BYTES, Contents, DamagedPlace, Verification};
pub use load::{Load, LoadEnd, Tally, Timeline, Window, WindowLimits};
pub use metered::{MeteredDrive, Traffic};
pub use sweep::{FillError, SweepOptions, fill, verify};
pub use target::{DriveTarget, Target};
pub use workload::{
    BlockShare, Choice, JobCursor, Pattern, Region, ResolvedWorkload, Workload, WorkloadError, random_stream,
};
