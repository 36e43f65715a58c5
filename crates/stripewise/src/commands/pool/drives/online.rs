//! Options of `pool online`, which `control/src/operations/drives/online.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::BringOnline;

/// Bring a drive back online and resync the data that changed in its absence
#[derive(Args)]
#[command(after_help = "Example: stripewise pool online tank /dev/sdb")]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// The drive: its path or NBD URI, which may have changed, or its ID
    #[arg(value_name = "DRIVE")]
    drive: String,
    /// Resync in the foreground and return when it is complete
    #[arg(long)]
    wait: bool,
}

impl Options {
    pub(crate) fn request(&self) -> BringOnline {
        BringOnline { pool: self.name.clone(), drive: self.drive.clone(), wait: self.wait }
    }
}
