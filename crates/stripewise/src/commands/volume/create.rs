//! `volume create`: what can be typed; `control/src/operations/volumes/create.rs` carries it out.

use clap::{Args, ValueEnum};
use stripewise_control::names::VolumeName;
use stripewise_control::request::CreateVolume;
use stripewise_control::size::ByteSize;
use stripewise_engine::pool::Pin;
use stripewise_layout::LayoutSpec;

use crate::failure::{Failure, Result};

/// Create a volume with a RAID layout
#[derive(Args)]
pub(crate) struct Options {
    /// The pool and the new volume's name
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
    /// single raid0 raid1 raid4 raid5 raid6 raid7 raid10 raid50 raid60; also simple mirror mirror3
    /// parity dual-parity raidz1 raidz2 raidz3
    #[arg(long, value_name = "LAYOUT", value_parser = parse_layout)]
    layout: LayoutSpec,
    /// Drives that it lies on; all of the pool's if left out (raid1: two, single: one)
    #[arg(long, value_name = "N")]
    columns: Option<usize>,
    /// Groups, for raid50 and raid60
    #[arg(long, value_name = "G")]
    groups: Option<usize>,
    /// Bytes on one drive before the next one follows: a power of two, 4KiB to 1MiB [default:
    /// 256KiB on disks unless it is a mirror, else 64KiB]
    #[arg(long, value_name = "SIZE")]
    interleave: Option<ByteSize>,
    /// Usable size; all the room there is if left out
    #[arg(long, value_name = "SIZE")]
    size: Option<ByteSize>,
    /// Takes room only as it is written; may be larger than the pool. Wants --size
    #[arg(long, requires = "size")]
    thin: bool,
    /// Small writes are acknowledged once they are safe in the journal, and put in place later: on
    /// with parity on disks or with journal drives, unless turned off
    #[arg(long, conflicts_with = "write_through")]
    write_back: bool,
    /// Every write is in place before it is acknowledged: on otherwise
    #[arg(long)]
    write_through: bool,
    /// Checksums of all blocks, so that a drive that answers wrongly is found out: on unless turned
    /// off
    #[arg(long, value_name = "on|off", value_enum)]
    checksums: Option<Switch>,
    /// Keep all of it on fast drives, or all of it off them; left out: what is used most is moved
    /// there
    #[arg(long, value_name = "fast|slow", value_enum)]
    pin: Option<PinChoice>,
}

/// On or off as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// Drives to stay on as typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PinChoice {
    Fast,
    Slow,
}

/// A layout's name, with the hint that goes with a wrong one.
pub(crate) fn parse_layout(name: &str) -> std::result::Result<LayoutSpec, String> {
    name.parse().map_err(|error: stripewise_layout::LayoutError| format!("{error}; {}", error.hint()))
}

/// A layout with the number of columns that was asked for, where it leaves that open.
pub(crate) fn with_columns(layout: LayoutSpec, asked: Option<usize>) -> Result<LayoutSpec> {
    match (layout.columns, asked) {
        (Some(fixed), Some(asked)) if fixed != asked => {
            Err(Failure::usage(format!("a mirror of {fixed} copies has {fixed} columns, not {asked}"))
                .hint("use raid1 with --columns"))
        }
        (fixed, asked) => Ok(LayoutSpec { columns: asked.or(fixed), ..layout }),
    }
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> Result<CreateVolume> {
        let layout = LayoutSpec {
            groups: self.groups,
            interleave_bytes: self.interleave.map(|size| size.0),
            ..with_columns(self.layout, self.columns)?
        };
        Ok(CreateVolume {
            volume: self.name.clone(),
            layout,
            size_bytes: self.size.map(|size| size.0),
            thin: self.thin,
            write_back: match (self.write_back, self.write_through) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            },
            checksums: self.checksums.map(|switch| switch == Switch::On),
            pin: match self.pin {
                Some(PinChoice::Fast) => Pin::Fast,
                Some(PinChoice::Slow) => Pin::Slow,
                None => Pin::None,
            },
        })
    }
}
