//! Options of `pool replace`, which `control/src/operations/drives/replace.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::ReplaceDrive;

/// Replace a drive; a working drive stays in use until the copy is complete
#[derive(Args)]
#[command(after_help = "Example: stripewise pool replace tank /dev/sdb /dev/sdf --wait")]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// The drive to replace: its path or NBD URI, last known path, or ID
    #[arg(value_name = "OLD")]
    old: String,
    /// The new drive: a file, block device, volume (POOL/VOL) or NBD URI, or the ID of one of the
    /// pool's spares
    #[arg(value_name = "NEW")]
    new: String,
    /// Overwrite the new drive even if it holds data
    #[arg(long)]
    force: bool,
    /// Confirm a smaller drive, with which the pool has less space
    #[arg(long)]
    yes: bool,
    /// Rebuild in the foreground and return when it is complete
    #[arg(long)]
    wait: bool,
}

impl Options {
    pub(crate) fn request(&self) -> ReplaceDrive {
        ReplaceDrive {
            pool: self.name.clone(),
            old: self.old.clone(),
            new: self.new.clone(),
            force: self.force,
            yes: self.yes,
            wait: self.wait,
        }
    }
}
