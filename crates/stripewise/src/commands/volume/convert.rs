//! Options of `volume convert`, which `control/src/operations/volumes/convert.rs` executes.

use clap::Args;
use stripewise_control::names::VolumeName;
use stripewise_control::request::ConvertVolume;
use stripewise_control::size::ByteSize;
use stripewise_layout::LayoutSpec;
use stripewise_pool::MOST_SLICES;

use crate::commands::volume::create::{parse_layout, with_columns};
use crate::failure::Result;

/// Convert a volume to another layout or number of slices online
#[derive(Args)]
#[command(after_help = "Example: stripewise volume convert tank/data --layout raid6")]
pub(crate) struct Options {
    /// The volume
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
    /// New layout: single raid0 raid1 raid4 raid5 raid6 raid7 raid10 raid50 raid60; also simple
    /// mirror mirror3 parity dual-parity raidz1 raidz2 raidz3
    #[arg(long, value_name = "LAYOUT", value_parser = parse_layout,
        required_unless_present_any = ["cancel", "slices"])]
    layout: Option<LayoutSpec>,
    /// Number of drives per row [default: all of the pool's; raid1: 2, single: 1]
    #[arg(long, value_name = "N", requires = "layout")]
    columns: Option<usize>,
    /// Number of groups, for raid50 and raid60
    #[arg(long, value_name = "G", requires = "layout")]
    groups: Option<usize>,
    /// Strip size: a power of two from 4KiB to 1MiB [default: unchanged]
    #[arg(long, value_name = "SIZE", requires = "layout")]
    interleave: Option<ByteSize>,
    /// Number of slices, 1 to 8, with or without another layout [default: unchanged]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_SLICES)))]
    slices: Option<u32>,
    /// Cancel the running conversion and return to the previous layout
    #[arg(long, conflicts_with_all = ["layout", "columns", "groups", "interleave", "slices"])]
    cancel: bool,
    /// Confirm converting to a layout that survives fewer drive failures
    #[arg(long)]
    yes: bool,
    /// Convert in the foreground and return when it is complete
    #[arg(long)]
    wait: bool,
}

impl Options {
    pub(crate) fn request(&self) -> Result<ConvertVolume> {
        let layout = match self.layout {
            Some(layout) => Some(LayoutSpec {
                groups: self.groups,
                interleave_bytes: self.interleave.map(|size| size.0),
                ..with_columns(layout, self.columns)?
            }),
            None => None,
        };
        let (volume, slices) = (self.name.clone(), self.slices);
        Ok(ConvertVolume { volume, layout, slices, yes: self.yes, wait: self.wait })
    }
}
