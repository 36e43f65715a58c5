//! Options of `snapshot clone`, which `control/src/operations/snapshots/clone.rs` executes.

use clap::Args;
use stripewise_control::names::{SnapshotName, VolumeName};
use stripewise_control::request::CloneSnapshot;

/// Create a volume that begins as a snapshot and shares its blocks
#[derive(Args)]
#[command(after_help = "Example: stripewise snapshot clone tank/data@monday tank/trial")]
pub(crate) struct Options {
    /// The snapshot
    #[arg(value_name = "POOL/VOL@NAME")]
    name: SnapshotName,
    /// The new volume, in the same pool
    #[arg(value_name = "POOL/NEWVOL")]
    target: VolumeName,
}

impl Options {
    pub(crate) fn request(&self) -> CloneSnapshot {
        CloneSnapshot { snapshot: self.name.clone(), target: self.target.clone() }
    }
}
