//! What goes over a connection, as plain data: parsing and writing, apart from reading and sending,
//! so that they can be fuzzed.

pub(super) mod errors;
pub(super) mod negotiation;
pub(super) mod options;
pub(super) mod protocol;
pub(super) mod replies;
pub(super) mod requests;
