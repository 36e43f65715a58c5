//! RAID arrays: everything between a volume's request and its drives, in plain `async` Rust without
//! threads, sockets, system calls or a wall clock. An array sees drives and a clock
//! (`stripewise-drive`), addresses and plans (`stripewise-layout`) and arithmetic
//! (`stripewise-parity`), and runs the same on real drives and on modelled ones.
//!
//! A request passes the folders in this order: `array/` (the array itself; `write.rs` and
//! `stripe_write.rs`), `stripes/` (stripe locks), `map/` (written regions and write intents),
//! `sums/` with `checksums/` (checksums of blocks), `log/` with `journal/` (the journal),
//! `columns/` (the slab and drive of each column), `member/` (the queue in front of a drive).
//! Beside them are `write_back/`, `read/`, `replay/` (after a crash) and `jobs/` (rebuild, scrub,
//! column migration).
//!
//! An array records nothing about itself. The crate that opens it (`stripewise-pool`) provides its
//! rows, areas and drives, and implements [`ArrayHost`] for what must be recorded.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

#[cfg(test)]
#[macro_use]
#[path = "../../../tests/cases.rs"]
mod cases;

mod array;
mod block_array;
mod block_set;
#[doc(hidden)]
pub mod checksums;
mod columns;
mod error;
mod flush_losses;
#[doc(hidden)]
pub mod fuzzing;
mod handle;
mod heat;
mod jobs;
mod journal;
mod log;
mod map;
mod member;
pub mod mutation;
mod read;
mod replay;
pub mod rows;
mod shards;
mod stripes;
mod sums;
mod sync;
pub mod tuning;
mod write_back;

pub use array::{
    AreaPlace, Array, ArrayCounters, ArrayHost, ArrayInit, ArrayMember, ArrayOptions, ArraySpec, HostRequest,
    LocalFuture, NoHost, SumsInit,
};
pub use block_array::BlockArray;
#[doc(hidden)]
pub use block_set::{Bits, Block, BlockSet, SPAN_BLOCKS, Span};
pub use error::ArrayError;
pub use flush_losses::FlushFailures;
pub use handle::ArrayHandle;
pub use jobs::rebuild::RowRebuild;
pub use jobs::scrub::{PlaceFault, ScrubProgress, ScrubReport, WrongPlace};
pub use journal::Area;
pub use map::extents::{Extent, push_extent};
pub use map::regions::RegionState;
pub use member::again::MemberAgain;
pub use member::gate::Gate;
pub use member::{Class, FailReason, Member, MemberCounters, MemberLabel, MemberOptions};
pub use shards::link::ShardLink;
pub use shards::site::{ArrayPlace, ArrayThread, PoolSite};
#[doc(hidden)]
pub use stripes::lock_order;
#[doc(hidden)]
pub use sums::page_bytes_per_slab;
