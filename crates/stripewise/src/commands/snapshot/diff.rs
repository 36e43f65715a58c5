//! Options of `snapshot diff`, which `control/src/operations/snapshots/diff.rs` executes.

use clap::Args;
use stripewise_control::names::{ReadableName, SnapshotName};
use stripewise_control::request::CompareSnapshots;
use stripewise_control::size::ByteSize;

/// Show the ranges in which two snapshots of a volume differ
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    stripewise snapshot diff tank/data@monday tank/data@tuesday\n  \
    stripewise snapshot diff tank/data@monday tank/data")]
pub(crate) struct Options {
    /// The older snapshot
    #[arg(value_name = "POOL/VOL@OLDER")]
    older: SnapshotName,
    /// The newer snapshot, or the volume as it is now
    #[arg(value_name = "POOL/VOL[@NEWER]")]
    newer: ReadableName,
    /// Show ranges from this offset on
    #[arg(long, value_name = "N", default_value = "0")]
    offset: ByteSize,
    /// Show at most this many ranges [default: 10000]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

impl Options {
    pub(crate) fn request(&self) -> CompareSnapshots {
        CompareSnapshots {
            snapshot: self.older.clone(),
            newer: Box::new(self.newer.clone()),
            offset: self.offset.0,
            limit: self.limit,
        }
    }
}
