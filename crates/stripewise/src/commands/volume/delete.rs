//! Options of `volume delete`, which `control/src/operations/volumes/delete.rs` executes.

use clap::Args;
use stripewise_control::names::VolumeName;
use stripewise_control::request::DeleteVolume;

/// Delete a volume
#[derive(Args)]
#[command(after_help = "Example: stripewise volume delete tank/data --yes")]
pub(crate) struct Options {
    /// The volume
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
    /// Confirm deleting all data in the volume
    #[arg(long)]
    yes: bool,
}

impl Options {
    pub(crate) fn request(&self) -> DeleteVolume {
        DeleteVolume { volume: self.name.clone(), yes: self.yes }
    }
}
