//! Options of `snapshot delete`, which `control/src/operations/snapshots/delete.rs` executes.

use clap::Args;
use stripewise_control::names::SnapshotName;
use stripewise_control::request::DeleteSnapshots;

/// Delete snapshots and free the space that only they hold
#[derive(Args)]
#[command(after_help = "Example: stripewise snapshot delete tank/data@monday")]
pub(crate) struct Options {
    /// The snapshots
    #[arg(value_name = "POOL/VOL@NAME", required = true)]
    names: Vec<SnapshotName>,
}

impl Options {
    pub(crate) fn request(&self) -> DeleteSnapshots {
        DeleteSnapshots { snapshots: self.names.clone() }
    }
}
