//! Options of `volume list`, which `control/src/operations/volumes/list.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::ListVolumes;

use crate::commands::list_options::ListOptions;

/// List volumes
#[derive(Args)]
#[command(after_help = "Example: stripewise volume list tank -o volume,state")]
pub(crate) struct Options {
    /// The pool [default: all known pools]
    #[arg(value_name = "POOL")]
    pool: Option<PoolName>,
    #[command(flatten)]
    pub(crate) list: ListOptions,
}

impl Options {
    pub(crate) fn request(&self) -> ListVolumes {
        ListVolumes { pool: self.pool.clone() }
    }
}
