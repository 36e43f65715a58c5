//! `volume convert`: what can be typed; `control/src/operations/volumes/convert.rs` carries it out.

use clap::Args;
use stripewise_control::names::VolumeName;
use stripewise_control::request::ConvertVolume;
use stripewise_control::size::ByteSize;
use stripewise_layout::LayoutSpec;

use crate::commands::volume::create::{parse_layout, with_columns};
use crate::failure::Result;

/// Convert a volume to another layout online
#[derive(Args)]
pub(crate) struct Options {
    /// The volume
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
    /// single raid0 raid1 raid4 raid5 raid6 raid7 raid10 raid50 raid60; also simple mirror mirror3
    /// parity dual-parity raidz1 raidz2 raidz3
    #[arg(long, value_name = "LAYOUT", value_parser = parse_layout, required_unless_present = "cancel")]
    layout: Option<LayoutSpec>,
    /// Drives that it lies on; all of the pool's if left out (raid1: two, single: one)
    #[arg(long, value_name = "N")]
    columns: Option<usize>,
    /// Groups, for raid50 and raid60
    #[arg(long, value_name = "G")]
    groups: Option<usize>,
    /// Bytes on one drive before the next one follows: a power of two, 4KiB to 1MiB; as it is if
    /// left out
    #[arg(long, value_name = "SIZE")]
    interleave: Option<ByteSize>,
    /// Cancel the conversion that is under way: the volume goes back to the layout that it had
    #[arg(long, conflicts_with_all = ["layout", "columns", "groups", "interleave"])]
    cancel: bool,
    /// Yes, also to a layout that survives the loss of fewer drives
    #[arg(long)]
    yes: bool,
    /// Do the work now, in the foreground, and return when it is done
    #[arg(long)]
    wait: bool,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> Result<ConvertVolume> {
        let layout = match self.layout {
            Some(layout) => Some(LayoutSpec {
                groups: self.groups,
                interleave_bytes: self.interleave.map(|size| size.0),
                ..with_columns(layout, self.columns)?
            }),
            None => None,
        };
        Ok(ConvertVolume { volume: self.name.clone(), layout, yes: self.yes, wait: self.wait })
    }
}
