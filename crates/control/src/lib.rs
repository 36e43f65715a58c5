//! Pools as a program uses them: found by their names, opened under a lock, served to clients, and
//! looked after. Whatever people type, send over HTTP or read is made by the faces on this library
//! (the command line, the daemon's socket, HTTP): here nothing is printed and no option is parsed.
//!
//! The rooms:
//!
//! - `registry`: the state folder, the pools and drives that are known, one lock per pool;
//! - `drives`: what offers itself as a drive, what it holds, and where a pool's drives are now;
//! - `pools`: a pool that is open, those beneath it, those that are served, and how they come back;
//! - `daemon`: listeners for clients and commands, turns among commands, what is told of pools;
//! - `messages`: what can be asked, and what comes of it, as data; `operations` carry it out;
//! - `notation`: names, sizes and moments as people write them; `jobs`, `failure`.
//!
//! [`Control`] is what every operation on pools gets, [`Environment`] what others do.

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
pub use notation::{json, names, plain, size, times};
