//! `volume delete`: what can be typed; `control/src/operations/volumes/delete.rs` carries it out.

use clap::Args;
use stripewise_control::names::VolumeName;
use stripewise_control::request::DeleteVolume;

/// Delete a volume
#[derive(Args)]
pub(crate) struct Options {
    /// The volume
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
    /// Yes, lose all that it holds
    #[arg(long)]
    yes: bool,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> DeleteVolume {
        DeleteVolume { volume: self.name.clone(), yes: self.yes }
    }
}
