//! Options of `volume create`, which `control/src/operations/volumes/create.rs` executes.

use clap::{Args, ValueEnum};
use stripewise_control::names::VolumeName;
use stripewise_control::request::CreateVolume;
use stripewise_control::size::{ByteSize, WantedSize};
use stripewise_layout::LayoutSpec;
use stripewise_pool::{MOST_SLICES, Pin, USUAL_RESERVE_PERCENT};

use crate::failure::{Failure, Result};

/// Create a volume with a RAID layout
#[derive(Args)]
#[command(after_help = "Example: stripewise volume create tank/data --layout raid5 --size 100GiB
         stripewise volume create tank/db --layout raid5 --size 100GiB --log --reserve 25")]
pub(crate) struct Options {
    /// The pool and the new volume's name
    #[arg(value_name = "POOL/VOL")]
    name: VolumeName,
    /// Layout: single raid0 raid1 raid4 raid5 raid6 raid7 raid10 raid50 raid60; also simple mirror
    /// mirror3 parity dual-parity raidz1 raidz2 raidz3
    #[arg(long, value_name = "LAYOUT", value_parser = parse_layout)]
    layout: LayoutSpec,
    /// Number of drives per row [default: all of the pool's, on drives of different sizes those
    /// that hold most; raid1: 2, single: 1]
    #[arg(long, value_name = "N")]
    columns: Option<usize>,
    /// Number of groups, for raid50 and raid60
    #[arg(long, value_name = "G")]
    groups: Option<usize>,
    /// Strip size: a power of two from 4KiB to 1MiB [default: 256KiB on hard disks except for
    /// mirrors, otherwise 64KiB]
    #[arg(long, value_name = "SIZE")]
    interleave: Option<ByteSize>,
    /// Usable size: 100GiB, a share of the free space (50%), or max [default: max]
    #[arg(long, value_name = "SIZE")]
    size: Option<WantedSize>,
    /// Allocate space as the volume is written; it may be larger than the pool. Requires --size
    #[arg(long, requires = "size")]
    thin: bool,
    /// Acknowledge small writes once they are durable in the journal; write them in place later
    /// [default with parity on hard disks, and with journal drives]
    #[arg(long, conflicts_with = "write_through")]
    write_back: bool,
    /// Write in place before acknowledging [default otherwise]
    #[arg(long)]
    write_through: bool,
    /// Checksum all blocks, to detect drives that return wrong data [default: on]
    #[arg(long, value_name = "on|off", value_enum)]
    checksums: Option<Switch>,
    /// Keep the volume on fast drives (fast) or off them (slow) [default: frequently used data
    /// moves to fast drives]
    #[arg(long, value_name = "fast|slow", value_enum)]
    pin: Option<PinChoice>,
    /// Make a log volume: it never overwrites, so random writes cost no reads and parity has no
    /// write hole. Its space is allocated at once; it cannot be resized or converted yet
    #[arg(long, conflicts_with_all = ["thin", "write_back", "write_through", "pin"])]
    log: bool,
    /// Share of a log volume's space kept free for cleaning, 5 to 50 [default: 15]
    #[arg(long, value_name = "PERCENT", requires = "log")]
    reserve: Option<u32>,
    /// Cut the volume into arrays that extents of some MiB go to in turn, 1 to 8; not on hard disks
    /// [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_SLICES)))]
    slices: Option<u32>,
}

/// `on` or `off` on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// Pin on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PinChoice {
    Fast,
    Slow,
}

/// Parses a layout name; the error ends with its hint.
pub(crate) fn parse_layout(name: &str) -> std::result::Result<LayoutSpec, String> {
    name.parse().map_err(|error: stripewise_layout::LayoutError| format!("{error}; {}", error.hint()))
}

/// Sets the requested number of columns in a layout that does not fix it.
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
    pub(crate) fn request(&self) -> Result<CreateVolume> {
        let layout = LayoutSpec {
            groups: self.groups,
            interleave_bytes: self.interleave.map(|size| size.0),
            ..with_columns(self.layout, self.columns)?
        };
        Ok(CreateVolume {
            volume: self.name.clone(),
            layout,
            size_bytes: self.size,
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
            log_reserve_percent: self.log.then(|| self.reserve.unwrap_or(USUAL_RESERVE_PERCENT)),
            slices: self.slices,
        })
    }
}
