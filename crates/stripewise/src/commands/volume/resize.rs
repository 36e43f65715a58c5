//! Options of `volume resize`, which `control/src/operations/volumes/resize.rs` executes.

use clap::Args;
use stripewise_control::names::VolumeName;
use stripewise_control::request::ResizeVolume;
use stripewise_control::size::WantedSize;

/// Grow or shrink a volume
#[derive(Args)]
#[command(after_help = "Example: stripewise volume resize tank/data 200GiB")]
pub(crate) struct Options {
    /// The volume
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
    /// New usable size: 100GiB, more or less than now (+10GiB, -10GiB), or a share of all space
    /// that the volume could have (50%, max)
    #[arg(value_name = "SIZE", allow_hyphen_values = true)]
    size: WantedSize,
}

impl Options {
    pub(crate) fn request(&self) -> ResizeVolume {
        ResizeVolume { volume: self.name.clone(), size_bytes: self.size }
    }
}
