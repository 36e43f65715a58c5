//! Options of `umount`, which `control/src/operations/mounts.rs` executes.

use std::path::PathBuf;

use clap::Args;
use stripewise_control::request::Unmount;

/// End a mount of the daemon, and do not mount it again
#[derive(Args)]
#[command(after_help = "Example: stripewise umount /mnt/data")]
pub(crate) struct Options {
    /// The mount point, or what is mounted: POOL or POOL/VOL
    #[arg(value_name = "DIR|POOL[/VOL]")]
    target: PathBuf,
}

impl Options {
    pub(crate) fn request(&self) -> Unmount {
        Unmount { target: self.target.clone() }
    }
}
