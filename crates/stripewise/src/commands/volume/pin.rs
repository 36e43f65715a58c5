//! `volume pin`: what can be typed; `control/src/operations/volumes/pin.rs` carries it out.

use clap::{Args, ValueEnum};
use stripewise_control::names::VolumeName;
use stripewise_control::request::PinVolume;
use stripewise_engine::pool::Pin;

/// Pin a volume to fast or slow drives, or let its data move with use
#[derive(Args)]
pub(crate) struct Options {
    /// The volume
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
    /// fast: all of it on fast drives; slow: none of it; none: what is used most moves there
    #[arg(value_name = "fast|slow|none", value_enum)]
    pin: PinChoice,
    /// Move its rows now, and return when they are there
    #[arg(long)]
    wait: bool,
}

/// Drives to stay on as typed.
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
    /// What is asked by them.
    pub(crate) fn request(&self) -> PinVolume {
        PinVolume { volume: self.name.clone(), pin: self.pin.into(), wait: self.wait }
    }
}
