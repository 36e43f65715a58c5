//! Listeners for clients: [`nbd`], a server for the network block device protocol, [`mod@fuse`],
//! volumes as files, and [`vhost`], volumes as disks of virtual machines. [`bridge`] carries what
//! comes from other threads to the executor.
//!
//! What is exported is behind two traits ([`Exports`], [`Export`]), so that volumes can come and go
//! while servers run, and so that servers can be tested on exports that fail on demand.
//! [`PoolExports`] has the volumes of open pools. No system calls here: sockets are
//! `stripewise-runtime`'s, on the executor that the engine runs on.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod block;
pub mod bridge;
pub mod budget;
mod client_id;
mod direct;
pub mod fuse;
mod losses;
pub mod nbd;
pub mod plain;
mod pools;
pub mod shares;
mod threads;
pub mod vhost;

pub use block::{Ending, Export, Exports, UnalignedGate, VolumeExport, discard, write, write_zeroes};
pub use client_id::ClientId;
pub use direct::DirectExport;
pub use losses::Losses;
pub use pools::{Hold, PoolExports};
pub use threads::{MAX_THREADS, start_threads};
