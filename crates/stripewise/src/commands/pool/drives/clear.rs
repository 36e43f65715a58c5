//! Options of `pool clear`, which `control/src/operations/drives/clear.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::Clear;

/// Reset error counters and acknowledge drive conditions
#[derive(Args)]
#[command(after_help = "Example: stripewise pool clear tank /dev/sdb")]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// The drive: its path or ID [default: all drives]
    #[arg(value_name = "DRIVE")]
    drive: Option<String>,
}

impl Options {
    pub(crate) fn request(&self) -> Clear {
        Clear { pool: self.name.clone(), drive: self.drive.clone() }
    }
}
