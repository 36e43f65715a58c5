//! Options of `pool retire`, which `control/src/operations/drives/retire.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::RetireDrive;

/// Migrate data off a drive online, then remove it
#[derive(Args)]
#[command(after_help = "Example: stripewise pool retire tank /dev/sdb --wait")]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// The drive: its path or ID
    #[arg(value_name = "DRIVE")]
    drive: String,
    /// Migrate in the foreground and return when the drive is removed
    #[arg(long)]
    wait: bool,
}

impl Options {
    pub(crate) fn request(&self) -> RetireDrive {
        RetireDrive { pool: self.name.clone(), drive: self.drive.clone(), wait: self.wait }
    }
}
