//! Access modes for opening a pool.

/// Access mode of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read-only: nothing is written to any drive. Shared by any number of processes.
    Look,
    /// Read and write: exclusive to one process.
    Change,
}
