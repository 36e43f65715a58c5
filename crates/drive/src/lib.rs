//! What the engine knows of the world: drives, buffers, a clock, and single-threaded waiting. No
//! system calls here.
//!
//! The engine is written against this crate alone, so the same code runs on real drives in real
//! time and on modelled drives in virtual time (both executors live in `stripewise-runtime`).
//! Everything is `!Send`: one shard, one thread.

#![warn(unreachable_pub)]
#![deny(unsafe_op_in_unsafe_fn)]

// The executor of the tests is written against the crate from outside, so that unit tests and
// tests/ share it.
#[cfg(test)]
extern crate self as stripewise_drive;
#[cfg(test)]
#[path = "../tests/it/kit/mod.rs"]
#[allow(unreachable_pub, reason = "the tests from outside use it, too")]
mod support;

mod buffer;
mod cause;
mod cause_meter;
mod checked;
mod completion;
mod context;
mod crash;
mod error;
mod fault;
mod memory;
mod model;
mod null;
mod operation;
mod pace;
mod paced;
mod packed;
mod random;
mod ranges;
mod request;
mod timing;
mod wait;

pub use buffer::{BUFFER_ALIGNMENT, Buffer, BufferPool, access};
pub use cause::Cause;
pub use cause_meter::{CauseCounts, CauseMeter, CauseTable};
pub use checked::CheckedDrive;
pub use completion::{Completion, CompletionListener, CompletionSender, completion};
pub use context::{Clock, Context, JoinHandle, Sleep, Spawn, TimeLimit, TimedOut, TimerId, yield_now};
pub use crash::{CrashDrive, CutReport};
pub use error::{DriveError, DriveErrorKind, IoResult};
pub use fault::{FaultCounts, FaultyDrive, WriteFault};
pub use memory::MemoryDrive;
pub use model::{ModelDrive, ModelSpec};
pub use null::NullDrive;
pub use operation::Operation;
pub use pace::{Pace, PaceError};
pub use paced::{BURST_NS as PACE_BURST_NS, PacedDrive};
pub use packed::MAX_UNPACKED_BYTES;
pub use random::{Delay, SplitMix64};
pub use request::{Drive, DriveInfo, DriveKind, IoRequest, Segments};
pub use wait::{Channel, Event, Semaphore, SemaphorePermit};
