//! The state of a volume's checkpoints (`checkpoint.rs`).

use std::cell::Cell;

use stripewise_drive::Event;

/// Serialises checkpoints and numbers them.
#[derive(Default)]
pub(super) struct CheckpointState {
    pub running: Cell<bool>,
    pub begun: Cell<u64>,
    /// Number of the latest successful checkpoint, counted as in `begun`.
    pub done: Cell<u64>,
    pub ended: Event,
}
