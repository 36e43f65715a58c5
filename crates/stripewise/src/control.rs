//! Commands for pools that another process has open: that process takes them over a socket, carries
//! them out, and sends back what they say. So the command line is the same whether a daemon runs or
//! not.
//!
//! `client.rs` sends a command, `server.rs` takes it, `caller.rs` is what a command carried out for
//! somebody else knows of them, `frames.rs` what goes over the socket.

mod caller;
mod client;
mod frames;
mod frames_io;
mod server;

pub use caller::{Caller, Collected, Left};
pub use client::pass_on;
pub use server::{ControlSocket, From, carry_out, listen_patiently};
