//! Options of `pool list`, which `control/src/operations/pools/list.rs` executes.

use clap::Args;
use stripewise_control::request::ListPools;

/// List the known pools
#[derive(Args)]
pub(crate) struct Options {}

impl Options {
    pub(crate) fn request(&self) -> ListPools {
        ListPools {}
    }
}
