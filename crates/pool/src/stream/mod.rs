//! Snapshots as streams of bytes: sent from one volume, received by another, of any pool. The
//! format is described in `docs/internals/streams.md`.

pub(crate) mod error;
pub(crate) mod format;
pub(crate) mod incoming;
pub(crate) mod receive;
pub(crate) mod send;
