//! A server for the network block device protocol (NBD), fixed newstyle, as
//! [specified](https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md). `docs/nbd.md`
//! says what is supported.
//!
//! The rooms, in the order in which a connection passes them: `server.rs` (who is let in, how it
//! ends; `turned_away.rs`: who is not; `strangers.rs`: how many have not agreed on anything yet;
//! `door.rs`: what a client finds), `connection.rs` with `negotiation.rs` and `options.rs` (what it
//! wants), `transmission.rs` (its requests, from their bytes to their answers, which
//! [`crate::Export`] carries out) with `requests.rs` (what is asked, and whether it may be),
//! `replies.rs` and `outbox.rs` (answering, many answers in one system call). Below them
//! `transport.rs` with `tls.rs`, `inbox.rs`, and `patience.rs` (how long a client is waited for).
//! Parsing is apart from reading: bytes in, plain data out, so it can be fuzzed. [`client`] is the
//! other end: drives behind other servers.

pub mod client;
mod connection;
mod door;
mod errors;
#[doc(hidden)]
pub mod fuzzing;
mod inbox;
mod limits;
mod negotiation;
mod options;
mod outbox;
mod patience;
mod protocol;
mod replies;
mod requests;
mod server;
mod strangers;
mod terrain;
mod tls;
mod transmission;
mod transport;
mod turned_away;

pub use door::{Door, Rule, Who};
pub use limits::Limits;
pub use server::{Notice, Server, ServerOptions, ServerStatus};
pub use tls::{Tls, TlsError, TlsPolicy};
