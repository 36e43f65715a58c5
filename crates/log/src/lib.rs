//! Log volumes: arrays that never overwrite.
//!
//! Writes are gathered into *segments* of whole stripes, so parity costs no reads and there is no
//! write hole. A map says where each logical block is; a cleaner gathers what is still live. The
//! design is in `docs/internals/log-volumes.md`. In plain `async` Rust over the queues of drives
//! (`stripewise_array::Member`), like the in-place arrays. Pools open it
//! (`crates/pool/src/volume/log/`).
//!
//! The order to read it in: [`shape`] (addresses), [`summary`] (a segment describes itself),
//! `map/` (table, runs, merging), [`usage`] and [`plan`] (segments in use, segments to be
//! written), [`staging`] (flushes), `drives/` (writing with parity, reading with repair),
//! `roots/`, then `core` (the state) and `steps/`, one file per step: write, seal, flush, read,
//! commit, spill, clean, rebuild, scrub,
//! snapshot, diff, recover.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod core;
mod drives;
mod error;
mod heads;
mod log;
mod map;
pub mod mutation;
mod open_segment;
mod options;
mod plan;
mod rate;
mod readers;
mod roots;
mod shape;
mod sizes;
mod snapshots;
mod staging;
mod steps;
mod summary;
mod usage;

pub use crate::core::LogFigures;
pub use drives::columns::{Column, Columns, Stretch};
pub use error::LogError;
pub use log::{Log, LogInit};
pub use options::LogOptions;
pub use roots::slots::{FoundRoots, SlotRoots};
pub use roots::{LocalFuture, RootStore};
pub use shape::{BLOCK_BYTES, LogSpace};
pub use sizes::LogSizes;
pub use snapshots::LogSnapshot;
pub use steps::diff::{LogChange, LogChanges};
pub use steps::rebuild::{LogProgress, LogRebuildReport};
pub use steps::scrub::{LogScrubReport, LogWrongBlock};
