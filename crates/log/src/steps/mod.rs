//! The steps of the log: each file is one, and takes the log's state.

pub(crate) mod background;
pub(crate) mod clean;
pub(crate) mod commit;
pub(crate) mod diff;
pub(crate) mod flush;
pub(crate) mod look_up;
pub(crate) mod pace;
pub(crate) mod read;
pub(crate) mod rebuild;
pub(crate) mod recover;
pub(crate) mod scrub;
pub(crate) mod seal;
pub(crate) mod snapshot;
pub(crate) mod spill;
pub(crate) mod whole;
pub(crate) mod write;
