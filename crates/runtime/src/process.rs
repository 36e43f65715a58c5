//! What this process asks of the system for itself: to be told of signals, what it has used so far,
//! to be known as one that writes out other programs' memory; and what keeps it from more.

pub(crate) mod group;
pub(crate) mod io_flusher;
pub(crate) mod means;
pub(crate) mod signals;
pub(crate) mod usage;
