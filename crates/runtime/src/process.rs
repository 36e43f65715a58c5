//! This process's own dealings with the system: signals, resource usage, its role as an I/O
//! flusher, process groups, and its limits.

pub(crate) mod group;
pub(crate) mod io_flusher;
pub(crate) mod means;
pub(crate) mod signals;
pub(crate) mod usage;
