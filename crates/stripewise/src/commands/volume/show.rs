//! `volume show`: what can be typed; `control/src/operations/volumes/show.rs` carries it out.

use clap::Args;
use stripewise_control::names::VolumeName;
use stripewise_control::request::ShowVolume;

/// Show a volume: layout, size, drives
#[derive(Args)]
pub(crate) struct Options {
    /// The volume
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ShowVolume {
        ShowVolume { volume: self.name.clone() }
    }
}
