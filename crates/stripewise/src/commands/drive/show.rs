//! `drive show`: what can be typed; `control/src/operations/drives/show.rs` carries it out.

use std::path::PathBuf;

use clap::Args;
use stripewise_control::request::ShowDrives;

/// Show the pool, role and state of drives; read-only
#[derive(Args)]
pub(crate) struct Options {
    /// Paths, volumes (POOL/VOL), NBD URIs, or identities of drives that belong to a known pool
    #[arg(value_name = "DRIVE", required = true)]
    drives: Vec<PathBuf>,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ShowDrives {
        ShowDrives { drives: self.drives.clone() }
    }
}
