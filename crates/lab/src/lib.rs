//! The laboratory: workloads, the native driver, contents that can be checked, statistics, results
//! and reports.
//!
//! How each measurement is taken, and why, is in `docs/methods.md`.

#![warn(unreachable_pub)]

mod environment;
pub mod evaluate;
#[cfg(test)]
mod example;
mod loads;
pub mod method;
mod records;
mod reports;
pub mod scenario;
pub mod statistics;
pub mod study;
#[cfg(test)]
mod testing;

pub use environment::Environment;
pub use loads::contents::{BLOCK_BYTES, Contents, DamagedPlace, Data, Verification};
pub use loads::load::{Beat, Load, LoadEnd, Pulse, Surroundings, Tally, Window, WindowLimits};
pub use loads::metered::{MeteredDrive, Traffic};
pub use loads::scratch::{Scratch, remove_abandoned};
pub use loads::sweep::{FillError, SweepOptions, fill, verify, watched};
pub use loads::target::{DriveTarget, Target};
pub use loads::workload::{
    Access, Arrival, BlockShare, Choice, JobCursor, Pattern, Region, ResolvedWorkload, Workload,
    WorkloadError,
};
pub use loads::{driver, files};
pub use records::{dates, import, paired, record, results, store};
pub use reports::report::{Chart, report_html};
pub use reports::{forms, lab_report, remarks, tables};
