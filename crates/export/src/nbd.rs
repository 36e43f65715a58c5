//! A server for the network block device protocol (NBD), fixed newstyle, as
//! [specified](https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md). `docs/nbd.md`
//! says what is supported.
//!
//! The rooms, in the order in which a connection passes them: `server.rs` (who is let in, how it
//! ends) with `connection/turned_away.rs` (who is not) and `connection/strangers.rs` (how many have
//! not agreed on anything yet); `door.rs` (what a client finds); `connection.rs`, which leads
//! through `wire/negotiation.rs` and `wire/options.rs` (what it wants) to
//! `connection/transmission.rs` (its requests, from their bytes to their answers, which
//! [`crate::Export`] carries out) and `connection/outbox.rs` (many answers in one system call).
//! `wire/` is what is said, as plain data: bytes in, plain data out, so it can be fuzzed. Below
//! them `transport.rs` with `transport/` (TLS, what was received and not used yet, how long a
//! client is waited for). [`client`] is the other end: drives behind other servers.

pub mod client;
mod connection;
mod door;
#[doc(hidden)]
pub mod fuzzing;
mod limits;
mod server;
mod transport;
mod wire;

pub use door::{Door, Rule, Who};
pub use limits::Limits;
pub use server::{Notice, Server, ServerOptions, ServerStatus};
pub use transport::tls::{Tls, TlsError, TlsPolicy};
