//! Options of `snapshot create`, which `control/src/operations/snapshots/create.rs` executes.

use clap::Args;
use stripewise_control::names::SnapshotName;
use stripewise_control::request::CreateSnapshots;

/// Take snapshots of log volumes; those of one pool are of one instant
#[derive(Args)]
#[command(after_help = "Example: stripewise snapshot create tank/data@monday tank/journal@monday")]
pub(crate) struct Options {
    /// The snapshots
    #[arg(value_name = "POOL/VOL@NAME", required = true)]
    names: Vec<SnapshotName>,
}

impl Options {
    pub(crate) fn request(&self) -> CreateSnapshots {
        CreateSnapshots { snapshots: self.names.clone() }
    }
}
