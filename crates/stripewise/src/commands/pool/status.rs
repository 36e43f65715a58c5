//! Options of `pool status`, which `control/src/operations/pools/status.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::ShowPools;

/// Show the state of pools and the next command to run. Exit codes: 0 all online, 3 a pool is
/// degraded, 1 a pool has failed
#[derive(Args)]
#[command(after_help = "Example: stripewise pool status tank")]
pub(crate) struct Options {
    /// The pool [default: all known pools]
    #[arg(value_name = "POOL")]
    name: Option<PoolName>,
}

impl Options {
    pub(crate) fn request(&self) -> ShowPools {
        ShowPools { pool: self.name.clone() }
    }
}
