//! The RAID engine: everything between a client's request and the drives, in plain `async` Rust
//! that knows no threads, sockets, system calls or wall clock. It sees drives and a clock
//! (`stripewise-drive`), addresses and plans (`stripewise-layout`) and arithmetic
//! (`stripewise-parity`), and runs the same on real drives and on modelled ones.
//!
//! The rooms, in the order a write passes them: `array.rs` (what an array is, who is missing),
//! `write.rs` and `write/`, `stripe_table.rs` (who works on which stripe), `regions.rs` (what was
//! ever written, and where writes are under way), `member.rs` (the queue in front of a drive).
//! Beside them `read.rs`, `recover.rs`, `rebuild.rs`, `scrub.rs`, `discard.rs`, and `sums.rs` with
//! `checksums/`: whether what was read is what was written. Above them all `pool/`: drives,
//! volumes, and what is recorded of both.

#![forbid(unsafe_code)]

mod array;
#[doc(hidden)]
pub mod checksums;
mod columns;
mod defer_pace;
mod destage;
mod destage_round;
mod discard;
mod error;
mod extents;
mod flush_losses;
#[doc(hidden)]
pub mod fuzzing;
mod heat;
mod journal;
pub mod linear;
mod lock_order;
mod map;
mod member;
mod moves;
pub mod mutation;
mod new_parity;
mod pending;
pub mod pool;
mod read;
mod rebuild;
mod recover;
mod regions;
mod replay;
pub mod rows;
mod scrub;
mod settle;
mod stripe_table;
mod sums;
pub mod tuning;
mod write;
mod write_log;

pub use array::{
    AreaPlace, Array, ArrayCounters, ArrayHost, ArrayInit, ArrayMember, ArrayOptions, ArraySpec, LocalFuture,
    NoHost,
};
pub use error::ArrayError;
pub use extents::Extent;
pub use member::{Class, FailReason, Member, MemberCounters, MemberOptions};
pub use pool::{
    Activity, ConversionStatus, DriveId, DriveLabel, DriveStatus, JobKind, OpenMode, Pool, PoolError, PoolId,
    PoolOptions, PoolSpec, PoolState, PoolStatus, Role, ScrubSummary, Volume, VolumeInfo, VolumeSpec,
    VolumeState, inspect,
};
pub use rebuild::RowRebuild;
pub use scrub::{ScrubProgress, ScrubReport};
pub use sums::SumsInit;
