//! Options of `pool remove`, which `control/src/operations/drives/remove.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::RemoveDrive;

/// Remove a drive that holds no data of the pool
#[derive(Args)]
#[command(after_help = "Example: stripewise pool remove tank /dev/sdb")]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// The drive: its path, last known path, or ID
    #[arg(value_name = "DRIVE")]
    drive: String,
}

impl Options {
    pub(crate) fn request(&self) -> RemoveDrive {
        RemoveDrive { pool: self.name.clone(), drive: self.drive.clone() }
    }
}
