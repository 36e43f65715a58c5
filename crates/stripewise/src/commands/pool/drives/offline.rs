//! Options of `pool offline`, which `control/src/operations/drives/offline.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::TakeOffline;

/// Take a drive offline temporarily
#[derive(Args)]
#[command(after_help = "Example: stripewise pool offline tank /dev/sdb")]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// The drive: its path or ID
    #[arg(value_name = "DRIVE")]
    drive: String,
}

impl Options {
    pub(crate) fn request(&self) -> TakeOffline {
        TakeOffline { pool: self.name.clone(), drive: self.drive.clone() }
    }
}
