//! The RAID engine: everything between a client's request and the drives, in plain `async` Rust
//! that knows no threads, sockets, system calls or wall clock. It sees drives and a clock
//! (`stripewise-drive`), addresses and plans (`stripewise-layout`) and arithmetic
//! (`stripewise-parity`), and runs the same on real drives and on modelled ones.
//!
//! The rooms, in the order a write passes them: `array/` (what an array is; `write.rs` and
//! `stripe_write.rs`), `stripes/` (who works on which stripe), `map/` (what was ever written, and
//! where writes are in flight), `sums/` with `checksums/` (whether what was read is what was
//! written), `log/` with `journal/` (what a crash must not lose), `columns/` (which slab of which
//! drive), `member/` (the queue in front of a drive). Beside them `write_back/`, `read/`, `replay/`
//! and `jobs/` (rebuild, scrub, column migration). Above them all `pool/`: drives, volumes, and
//! what is recorded of both.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

#[cfg(test)]
#[macro_use]
#[path = "../../../tests/cases.rs"]
mod cases;

mod array;
mod block_set;
#[doc(hidden)]
pub mod checksums;
mod columns;
mod error;
mod flush_losses;
#[doc(hidden)]
pub mod fuzzing;
mod heat;
mod jobs;
mod journal;
pub mod linear;
mod log;
mod map;
mod member;
pub mod mutation;
pub mod pool;
mod read;
mod replay;
pub mod rows;
mod stripes;
mod sums;
mod sync;
pub mod tuning;
mod write_back;

pub use array::{
    AreaPlace, Array, ArrayCounters, ArrayHost, ArrayInit, ArrayMember, ArrayOptions, ArraySpec, LocalFuture,
    NoHost, SumsInit,
};
#[doc(hidden)]
pub use block_set::BlockSet;
pub use error::ArrayError;
pub use jobs::rebuild::RowRebuild;
pub use jobs::scrub::{ScrubProgress, ScrubReport};
pub use journal::Area;
pub use map::extents::Extent;
pub use member::{Class, FailReason, Member, MemberCounters, MemberOptions};
pub use pool::{
    Activity, ConversionStatus, DriveId, DriveLabel, DriveState, DriveStatus, JobKind, OpenMode, Pool,
    PoolError, PoolId, PoolOptions, PoolSpec, PoolState, PoolStatus, Role, ScrubSummary, ShareState, Volume,
    VolumeInfo, VolumeSpec, VolumeState, inspect,
};
