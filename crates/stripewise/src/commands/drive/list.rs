//! Options of `drive list`, which `control/src/operations/drives/list.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::ListDrives;

use crate::commands::list_options::ListOptions;

/// List the drives of pools
#[derive(Args)]
#[command(after_help = "Example: stripewise drive list -H -o path,serial,state")]
pub(crate) struct Options {
    /// The pool [default: all known pools]
    #[arg(value_name = "POOL")]
    pool: Option<PoolName>,
    #[command(flatten)]
    pub(crate) list: ListOptions,
}

impl Options {
    pub(crate) fn request(&self) -> ListDrives {
        ListDrives { pool: self.pool.clone() }
    }
}
