//! `pool clear`: what can be typed; `control/src/operations/drives/clear.rs` carries it out.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::Clear;

/// Reset error counts and acknowledge what the status reports of drives
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// The drive, by path or identity; all drives if left out
    #[arg(value_name = "DRIVE")]
    drive: Option<String>,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> Clear {
        Clear { pool: self.name.clone(), drive: self.drive.clone() }
    }
}
