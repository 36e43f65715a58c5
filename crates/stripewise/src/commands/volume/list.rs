//! `volume list`: what can be typed; `control/src/operations/volumes/list.rs` carries it out.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::ListVolumes;

/// List volumes
#[derive(Args)]
pub(crate) struct Options {
    /// The pool; all known ones if left out
    #[arg(value_name = "POOL")]
    pool: Option<PoolName>,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ListVolumes {
        ListVolumes { pool: self.pool.clone() }
    }
}
