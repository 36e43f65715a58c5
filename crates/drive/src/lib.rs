//! The engine's interface to the outside: drives, buffers, a clock, single-threaded waiting, and
//! messages between threads. No system calls here.
//!
//! The engine depends on this crate alone, so the same code runs on real drives in real time and on
//! modelled drives in virtual time (both executors live in `stripewise-runtime`). Everything is
//! `!Send`: one shard, one thread.

#![warn(unreachable_pub)]
#![deny(unsafe_op_in_unsafe_fn)]

// The test executor uses the crate from outside, so that unit tests and tests/ share it.
#[cfg(test)]
extern crate self as stripewise_drive;
#[cfg(test)]
#[path = "../tests/it/kit/mod.rs"]
#[allow(unreachable_pub, reason = "the tests from outside use it, too")]
mod support;

mod buffer;
mod cause;
mod cause_meter;
mod completion;
mod context;
mod drives;
mod error;
mod messages;
mod operation;
mod random;
mod request;
mod wait;

pub use buffer::{BUFFER_ALIGNMENT, Buffer, BufferPool, MovedBuffer, access};
pub use cause::Cause;
pub use cause_meter::{CauseCounts, CauseMeter, CauseTable};
pub use completion::{Completion, CompletionListener, CompletionSender, completion};
pub use context::{Clock, Context, JoinHandle, Sleep, Spawn, TimeLimit, TimedOut, TimerId, yield_now};
pub use drives::checked::CheckedDrive;
pub use drives::crash::{CrashDrive, CutReport};
pub use drives::fault::{FaultCounts, FaultyDrive, WriteFault};
pub use drives::memory::MemoryDrive;
pub use drives::model::{ModelDrive, ModelSpec};
pub use drives::null::NullDrive;
pub use drives::pace::{Pace, PaceError};
pub use drives::paced::{BURST_NS as PACE_BURST_NS, PacedDrive};

pub use error::{DriveError, DriveErrorKind, IoResult};
pub use messages::batches::{Delivery, MessageCounts};
pub use messages::port::{Answerer, HalfPort, Port, link};
pub use messages::shard::Shard;
pub use operation::Operation;
pub use random::{Delay, SplitMix64};
pub use request::{Drive, DriveInfo, DriveKind, IoRequest, OpenAgain, Segments};
pub use wait::{Channel, Event, Round, Rounds, Semaphore, SemaphorePermit};
