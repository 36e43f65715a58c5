//! Commands on snapshots.

pub(crate) mod clone;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod diff;
pub(crate) mod list;
pub(crate) mod receive;
pub(crate) mod rollback;
pub(crate) mod send;
