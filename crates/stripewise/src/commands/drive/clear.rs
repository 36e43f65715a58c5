//! Options of `drive clear`, which `control/src/operations/drives/erase.rs` executes.

use clap::Args;
use stripewise_control::request::ClearDrive;

/// Erase a drive that holds an old pool's superblock or other data, so that a pool can use it
///
/// Refused for drives in use, and for drives of pools that this host has.
#[derive(Args)]
#[command(after_help = "Example: stripewise drive clear /dev/sdb --yes")]
pub(crate) struct Options {
    /// A file, block device, volume (POOL/VOL) or NBD URI
    #[arg(value_name = "DRIVE")]
    drive: String,
    /// Confirm the loss of what the drive holds
    #[arg(long)]
    yes: bool,
    /// Also a drive of a pool that another host has not exported
    #[arg(long)]
    force: bool,
}

impl Options {
    pub(crate) fn request(&self) -> ClearDrive {
        ClearDrive { drive: self.drive.clone(), yes: self.yes, force: self.force }
    }
}
