//! Options of `pool list`, which `control/src/operations/pools/list.rs` executes.

use clap::Args;
use stripewise_control::request::ListPools;

use crate::commands::list_options::ListOptions;

/// List the known pools
#[derive(Args)]
#[command(after_help = "Example: stripewise pool list -H -o pool,id")]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) list: ListOptions,
}

impl Options {
    pub(crate) fn request(&self) -> ListPools {
        ListPools {}
    }
}
