//! Options of `pool destroy`, which `control/src/operations/pools/destroy.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::DestroyPool;

/// Destroy a pool and all of its volumes. Its drives are free then. Until one of them is used for
/// something else, `pool import --destroyed` brings the pool back
#[derive(Args)]
#[command(after_help = "Example: stripewise pool destroy tank --yes")]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Confirm destroying all data
    #[arg(long)]
    yes: bool,
    /// Erase the drives, so that the pool cannot be brought back: superblocks are overwritten, and
    /// the space of files is discarded
    #[arg(long)]
    wipe: bool,
}

impl Options {
    pub(crate) fn request(&self) -> DestroyPool {
        DestroyPool { pool: self.name.clone(), yes: self.yes, wipe: self.wipe }
    }
}
