//! Commands on volumes.

pub(crate) mod convert;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod list;
pub(crate) mod pin;
pub(crate) mod read;
pub(crate) mod resize;
pub(crate) mod set;
pub(crate) mod show;
pub(crate) mod write;
