//! Options of `volume list`, which `control/src/operations/volumes/list.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::ListVolumes;

/// List volumes
#[derive(Args)]
pub(crate) struct Options {
    /// The pool [default: all known pools]
    #[arg(value_name = "POOL")]
    pool: Option<PoolName>,
}

impl Options {
    pub(crate) fn request(&self) -> ListVolumes {
        ListVolumes { pool: self.pool.clone() }
    }
}
