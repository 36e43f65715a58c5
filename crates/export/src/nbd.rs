//! A server for the network block device protocol (NBD), fixed newstyle, as
//! [specified](https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md). `docs/nbd.md`
//! lists the supported features.
//!
//! Modules in the order in which a connection passes them: `server.rs` (accepts and closes
//! connections), with `connection/turned_away.rs` (refusal of clients over the limit) and
//! `connection/handshakes.rs` (limit on handshakes); `door.rs` (exports visible to a client);
//! `connection.rs`, which runs `wire/negotiation.rs` and `wire/options.rs` (options), then
//! `connection/transmission.rs` (requests), `connection/backend.rs` (their execution by
//! [`crate::Export`]) and `connection/outbox.rs` (many answers in one system call). With several
//! cores `shards.rs` hands connections to other threads after the negotiation. `wire/` converts
//! between bytes and plain data without I/O, so that it can be fuzzed. Below them is `transport.rs`
//! with `transport/` (TLS, input buffer, timeouts). [`client`] is the other end: exports of other
//! servers as drives.

pub mod client;
mod connection;
mod door;
#[doc(hidden)]
pub mod fuzzing;
mod limits;
mod server;
mod shards;
mod shutting_down;
mod transport;
mod wire;

pub use door::{Door, Rule, Who, is_certificate_name};
pub use limits::Limits;
pub use server::{Notice, Server, ServerOptions, ServerStatus};
pub use transport::tls::{Tls, TlsError, TlsPolicy};
