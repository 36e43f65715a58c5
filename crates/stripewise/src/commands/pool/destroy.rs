//! `pool destroy`: what can be typed; `control/src/operations/pools/destroy.rs` carries it out.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::DestroyPool;

/// Destroy a pool and all of its volumes
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Yes, lose everything in it
    #[arg(long)]
    yes: bool,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> DestroyPool {
        DestroyPool { pool: self.name.clone(), yes: self.yes }
    }
}
