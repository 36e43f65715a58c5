//! Options of `drive show`, which `control/src/operations/drives/show.rs` executes.

use std::path::PathBuf;

use clap::Args;
use stripewise_control::request::ShowDrives;

/// Show the pool, role and state of drives; read-only
#[derive(Args)]
#[command(after_help = "Example: stripewise drive show /dev/sdb")]
pub(crate) struct Options {
    /// Paths, volumes (POOL/VOL), NBD URIs, or the IDs of drives in known pools
    #[arg(value_name = "DRIVE", required = true)]
    drives: Vec<PathBuf>,
}

impl Options {
    pub(crate) fn request(&self) -> ShowDrives {
        ShowDrives { drives: self.drives.clone() }
    }
}
