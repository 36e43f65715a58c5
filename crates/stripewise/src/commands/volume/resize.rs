//! `volume resize`: what can be typed; `control/src/operations/volumes/resize.rs` carries it out.

use clap::Args;
use stripewise_control::names::VolumeName;
use stripewise_control::request::ResizeVolume;
use stripewise_control::size::ByteSize;

/// Grow or shrink a volume
#[derive(Args)]
pub(crate) struct Options {
    /// The volume
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
    /// How much it should hold from now on
    #[arg(value_name = "SIZE")]
    size: ByteSize,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ResizeVolume {
        ResizeVolume { volume: self.name.clone(), size_bytes: self.size.0 }
    }
}
