//! `pool list`: what can be typed; `control/src/operations/pools/list.rs` carries it out.

use clap::Args;
use stripewise_control::request::ListPools;

/// List the known pools
#[derive(Args)]
pub(crate) struct Options {}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ListPools {
        ListPools {}
    }
}
