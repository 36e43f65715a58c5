//! Messages between shards. A shard is a thread with an executor of its own; in virtual time, a
//! group of tasks. Shard 0, the home, has the pools.
//!
//! - [`batches`] carries messages one way: those of one turn go together, under one lock and with
//!   one wake.
//! - [`port`] is a shard's end of a link to another: notes, calls and their answers.
//! - [`shard`] is the interface to another thread that is looked at between two of its tasks'
//!   polls.
//!
//! Buffers cross as [`MovedBuffer`](crate::MovedBuffer)s. The memory of one direction would gather
//! at the other end, so each message with data is answered with memory, and the other way round: a
//! read brings along the memory for its answer, and the answer to a write takes some back.

pub(crate) mod batches;
pub(crate) mod port;
pub(crate) mod shard;
