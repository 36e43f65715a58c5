//! The NBD client: exports of NBD servers as drives, so that a pool can span hosts. `docs/nbd.md`
//! has the guarantees.
//!
//! Modules: `uri.rs` (names an export), `connect.rs` with `tls.rs` (connects to it), `drive.rs`
//! (keeps the connection), `ledger.rs` with `identity_probe.rs` (requests in flight, and the
//! consequences of a lost connection), `unsettled.rs` (servers that may execute old requests),
//! `answers.rs` (reads replies).

mod answers;
mod connect;
mod drive;
mod error;
mod identity_probe;
mod ledger;
mod tls;
mod unsettled;
mod uri;

pub use connect::Peer;
pub use drive::NetworkDrive;
pub use error::{ConnectError, ConnectFault};
pub use uri::{NbdAddress, NbdPlace, NbdUri, UriError};
