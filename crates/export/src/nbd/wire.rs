//! The NBD protocol as plain data: parsing and encoding without I/O, so that they can be fuzzed.

pub(super) mod errors;
pub(super) mod negotiation;
pub(super) mod options;
pub(super) mod protocol;
pub(super) mod replies;
pub(super) mod requests;
