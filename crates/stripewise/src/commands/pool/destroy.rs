//! Options of `pool destroy`, which `control/src/operations/pools/destroy.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::DestroyPool;

/// Destroy a pool and all of its volumes
#[derive(Args)]
#[command(after_help = "Example: stripewise pool destroy tank --yes")]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Confirm destroying all data
    #[arg(long)]
    yes: bool,
}

impl Options {
    pub(crate) fn request(&self) -> DestroyPool {
        DestroyPool { pool: self.name.clone(), yes: self.yes }
    }
}
