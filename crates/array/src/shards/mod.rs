//! Arrays on other shards than their pool's. A shard is a thread with an executor of its own, or,
//! in virtual time, a group of tasks; the home is the pool's.
//!
//! - [`site`] is the shard's end: arrays of a pool by number, and the drives that they may use.
//! - [`link`] is the home's end: visits, and work that is sent.
//!
//! Buffers stay on their thread; their memory moves with the messages
//! (`drive/src/buffer/moved.rs`).

pub(crate) mod link;
pub(crate) mod site;
