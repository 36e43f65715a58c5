//! Pools as a program uses them: found by name, opened under a lock, served to clients, and
//! monitored. The faces (the command line, the daemon's socket, HTTP) build on this library and
//! make all text that people type or read: here nothing is printed and no option is parsed.
//!
//! Modules:
//!
//! - `registry`: the state folder, the known pools and drives, one lock per pool;
//! - `drives`: candidates for drives, their contents, and where a pool's drives are now;
//! - `pools`: open pools, those below them, served pools, and their reopening;
//! - `daemon`: listeners for clients and commands, turns among commands, events and alerts;
//! - `messages`: requests, and their responses, as data; `operations` run them;
//! - `notation`: names, sizes and times as people write them; `jobs`, `failure`.
//!
//! [`Control`] is the environment of operations on pools, [`Environment`] that of all others.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

pub mod access;
mod control;
pub mod daemon;
pub mod drives;
mod environment;
pub mod failure;
pub mod jobs;
mod messages;
mod notation;
pub mod operations;
pub mod pools;
pub mod registry;

pub use control::Control;
pub use environment::{Environment, JobStep, Notices, new_executor};
pub use failure::{Failure, Reason, Result};
pub use messages::{report, request, response, roles};
pub use notation::{file_system, json, names, plain, size, times};
