//! Options of `volume resize`, which `control/src/operations/volumes/resize.rs` executes.

use clap::Args;
use stripewise_control::names::VolumeName;
use stripewise_control::request::ResizeVolume;
use stripewise_control::size::ByteSize;

/// Grow or shrink a volume
#[derive(Args)]
#[command(after_help = "Example: stripewise volume resize tank/data 200GiB")]
pub(crate) struct Options {
    /// The volume
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
    /// New usable size
    #[arg(value_name = "SIZE")]
    size: ByteSize,
}

impl Options {
    pub(crate) fn request(&self) -> ResizeVolume {
        ResizeVolume { volume: self.name.clone(), size_bytes: self.size.0 }
    }
}
