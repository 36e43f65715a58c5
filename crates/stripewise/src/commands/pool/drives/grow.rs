//! Options of `pool grow`, which `control/src/operations/drives/grow.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::GrowPool;

/// Use the space of drives that became larger, one drive after the other
///
/// A drive without data grows at once. One with data is taken out and filled again from the other
/// drives: until that is done volumes have less redundancy.
#[derive(Args)]
#[command(after_help = "Example: stripewise pool grow tank --yes --wait")]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// The drives [default: all that became larger]
    #[arg(value_name = "DRIVE")]
    drives: Vec<String>,
    /// Confirm less redundancy while drives with data are filled again
    #[arg(long)]
    yes: bool,
    /// Rebuild in the foreground, and return when all drives are done
    #[arg(long)]
    wait: bool,
}

impl Options {
    pub(crate) fn request(&self) -> GrowPool {
        GrowPool { pool: self.name.clone(), drives: self.drives.clone(), yes: self.yes, wait: self.wait }
    }
}
