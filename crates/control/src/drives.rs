//! Drives: what offers itself as one, what it holds already, and where the drives of a pool are
//! now, whatever they are called.

pub mod candidates;
pub mod contents;
pub(crate) mod known;
pub(crate) mod misplaced;
pub mod names;
pub mod network;
pub mod opened;
pub mod search;
pub mod signatures;
pub(crate) mod space_below;
pub mod trouble;
