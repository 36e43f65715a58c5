//! Options of `snapshot rollback`, which `control/src/operations/snapshots/rollback.rs` executes.

use clap::Args;
use stripewise_control::names::SnapshotName;
use stripewise_control::request::RollBack;

/// Give a volume the contents of a snapshot; all later writes are lost
#[derive(Args)]
#[command(after_help = "Example: stripewise snapshot rollback tank/data@monday")]
pub(crate) struct Options {
    /// The snapshot
    #[arg(value_name = "POOL/VOL@NAME")]
    name: SnapshotName,
    /// Delete the snapshots that were taken later
    #[arg(short = 'r', long)]
    delete_newer: bool,
}

impl Options {
    pub(crate) fn request(&self) -> RollBack {
        RollBack { snapshot: self.name.clone(), delete_newer: self.delete_newer }
    }
}
