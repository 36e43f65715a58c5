//! What a pool is opened for.

/// What a command wants of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// To look and read: nothing is written to any drive; any number of processes at a time.
    Look,
    /// To change it: one process at a time.
    Change,
}
