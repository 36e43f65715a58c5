//! Options of `volume pin`, which `control/src/operations/volumes/pin.rs` executes.

use clap::{Args, ValueEnum};
use stripewise_control::names::VolumeName;
use stripewise_control::request::PinVolume;
use stripewise_pool::Pin;

/// Pin a volume to fast or slow drives, or tier it automatically
#[derive(Args)]
#[command(after_help = "Example: stripewise volume pin tank/data fast")]
pub(crate) struct Options {
    /// The volume
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
    /// fast: all data on fast drives; slow: none of it; none: frequently used data moves to fast
    /// drives
    #[arg(value_name = "fast|slow|none", value_enum)]
    pin: PinChoice,
    /// Migrate in the foreground and return when it is complete
    #[arg(long)]
    wait: bool,
}

/// Pin on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PinChoice {
    Fast,
    Slow,
    None,
}

impl From<PinChoice> for Pin {
    fn from(choice: PinChoice) -> Self {
        match choice {
            PinChoice::Fast => Self::Fast,
            PinChoice::Slow => Self::Slow,
            PinChoice::None => Self::None,
        }
    }
}

impl Options {
    pub(crate) fn request(&self) -> PinVolume {
        PinVolume { volume: self.name.clone(), pin: self.pin.into(), wait: self.wait }
    }
}
