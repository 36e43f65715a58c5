//! Drives and systems by name: parameters with unit, source, and how each was found.
//!
//! Entries are TOML files. Each parameter carries its unit in its name and says where its value is
//! from:
//!
//! ```toml
//! average_seek_ms = { value = 6.0, from = "fitted", source = "study 004", rows = ["Table 4"] }
//! ```
//!
//! Faults expected: users' files with parameters that are unknown, missing, without a unit or out
//! of range; each error has the file, the line and the nearest valid name.

mod drive;
mod entry;
mod listed;
mod taken;

pub use drive::{DriveEntry, DriveModel, Rates, drive, drives, parse_drive};
pub use entry::{CatalogueError, Origin, Parameter};
pub use listed::{ListedDrive, ListedParameter};
pub use taken::drive_text;
