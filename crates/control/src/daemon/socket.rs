//! Commands for pools that another process has open: that process takes them over a socket, carries
//! them out, and sends back what they say. So the command line is the same whether a daemon runs or
//! not.
//!
//! `frames.rs` is what goes over the socket, `server.rs` takes commands. Sending one, and being its
//! hands, is the command line's.

pub mod frames;
mod frames_io;
mod server;

pub use frames_io::{receive, send};
pub use server::{Asked, ControlSocket, listen_patiently};
