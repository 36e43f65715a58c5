//! Options of `volume show`, which `control/src/operations/volumes/show.rs` executes.

use clap::Args;
use stripewise_control::names::VolumeName;
use stripewise_control::request::ShowVolume;

/// Show a volume: layout, size, drives
#[derive(Args)]
#[command(after_help = "Example: stripewise volume show tank/data")]
pub(crate) struct Options {
    /// The volume
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
}

impl Options {
    pub(crate) fn request(&self) -> ShowVolume {
        ShowVolume { volume: self.name.clone() }
    }
}
