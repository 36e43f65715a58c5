//! Drives: what offers itself as one, what it holds already, and where the drives of a pool are
//! now, whatever they are called.

pub(crate) mod blkid;
pub mod candidates;
pub mod contents;
pub mod emptiness;
pub mod hardware;
pub(crate) mod inspections;
pub(crate) mod known;
pub(crate) mod looks;
pub(crate) mod misplaced;
pub mod names;
pub mod network;
pub mod opened;
pub(crate) mod opener;
pub(crate) mod own;
mod programs;
pub(crate) mod rights;
pub(crate) mod search;
pub(crate) mod signatures;
pub(crate) mod space_below;
pub(crate) mod trouble;
