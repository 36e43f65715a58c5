//! Options of `snapshot list`, which `control/src/operations/snapshots/list.rs` executes.

use clap::Args;
use stripewise_control::names::{PoolName, VolumeName};
use stripewise_control::request::ListSnapshots;

use crate::commands::list_options::ListOptions;

/// List snapshots
#[derive(Args)]
#[command(after_help = "Example: stripewise snapshot list tank/data -o snapshot,created")]
pub(crate) struct Options {
    /// The pool or volume [default: all known pools]
    #[arg(value_name = "POOL[/VOL]", value_parser = parse)]
    of: Option<Target>,
    #[command(flatten)]
    pub(crate) list: ListOptions,
}

/// A pool or a volume.
#[derive(Clone)]
enum Target {
    Pool(PoolName),
    Volume(VolumeName),
}

fn parse(text: &str) -> Result<Target, String> {
    match text.contains('/') {
        true => text.parse().map(Target::Volume),
        false => text.parse().map(Target::Pool),
    }
}

impl Options {
    pub(crate) fn request(&self) -> ListSnapshots {
        match self.of.clone() {
            None => ListSnapshots { pool: None, volume: None },
            Some(Target::Pool(pool)) => ListSnapshots { pool: Some(pool), volume: None },
            Some(Target::Volume(volume)) => ListSnapshots { pool: None, volume: Some(volume) },
        }
    }
}
