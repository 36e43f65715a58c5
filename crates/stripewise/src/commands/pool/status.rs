//! `pool status`: what can be typed; `control/src/operations/pools/status.rs` carries it out.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::ShowPools;

/// Show the state of pools, and the next command to run. Exit code 0: all is well, 3: works but
/// degraded, 1: failed
#[derive(Args)]
pub(crate) struct Options {
    /// The pool; all known ones if left out
    #[arg(value_name = "POOL")]
    name: Option<PoolName>,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ShowPools {
        ShowPools { pool: self.name.clone() }
    }
}
