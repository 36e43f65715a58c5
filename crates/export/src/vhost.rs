//! A server for vhost-user-blk: volumes as disks of virtual machines. A front end such as QEMU
//! shares the guest's memory; requests and data go through rings in it, and only signals through
//! the kernel.
//!
//! In reading order: `server.rs` has a socket for each export and accepts front ends,
//! `connection.rs` is the life of one, `session.rs` executes its messages (`wire.rs`), `queue.rs`
//! runs a queue: it takes chains from its ring (`ring.rs`) in the guest's memory (`memory.rs`), has
//! them executed as requests (`request.rs`), and records those in flight (`inflight.rs`).

mod config;
mod connection;
mod device;
#[doc(hidden)]
pub mod fuzzing;
mod inflight;
mod limits;
mod memory;
mod queue;
mod request;
mod ring;
mod server;
mod session;
mod wire;

pub use limits::VhostLimits;
pub use server::{VhostNotice, VhostServer, VhostStatus};
