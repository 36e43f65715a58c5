//! The other end: exports of NBD servers as drives, so that a pool can span hosts. `docs/nbd.md`
//! says what holds for them.
//!
//! The rooms: `uri.rs` (which export is meant), `connect.rs` with `tls.rs` (from there to a
//! connection), `drive.rs` (keeping it), `ledger.rs` with `witness.rs` (what is under way, and what
//! a lost connection means for it) and `unsettled.rs` (servers that may carry out old requests),
//! `answers.rs` (reading the server).

mod answers;
mod connect;
mod drive;
mod error;
mod ledger;
mod tls;
mod unsettled;
mod uri;
mod witness;

pub use drive::NetworkDrive;
pub use error::{ConnectError, ConnectFault};
pub use uri::{NbdAddress, NbdPlace, NbdUri, UriError};
