//! Options of `volume set`, which `control/src/operations/volumes/set.rs` executes.

use clap::Args;
use stripewise_control::names::VolumeName;
use stripewise_control::request::{SetVolume, VolumeSetting};

/// Change settings of a volume: automatic snapshots of a log volume
#[derive(Args)]
#[command(after_help = "Example: stripewise volume set tank/data hourly-snapshots=24 daily-snapshots=7")]
pub(crate) struct Options {
    /// The volume
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
    /// hourly-snapshots=N|off, daily-snapshots=N|off, weekly-snapshots=N|off: take a snapshot each
    /// hour, day or week (UTC) while the pool is open, and keep the newest N, 1 to 1000
    #[arg(value_name = "SETTING=VALUE", required = true)]
    settings: Vec<VolumeSetting>,
}

impl Options {
    pub(crate) fn request(&self) -> SetVolume {
        SetVolume { volume: self.name.clone(), settings: self.settings.clone() }
    }
}
