//! Options of `drive locate`, which `control/src/operations/drives/locate.rs` executes.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use stripewise_control::request::LocateDrive;

/// Switch the light of a drive's slot on or off, to find the drive
#[derive(Args)]
#[command(after_help = "Example: stripewise drive locate /dev/sdb on")]
pub(crate) struct Options {
    /// A path, or the ID of a drive in a known pool
    #[arg(value_name = "DRIVE")]
    drive: PathBuf,
    /// The light
    #[arg(value_name = "on|off")]
    light: Light,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Light {
    On,
    Off,
}

impl Options {
    pub(crate) fn request(&self) -> LocateDrive {
        LocateDrive { drive: self.drive.clone(), on: self.light == Light::On }
    }
}
