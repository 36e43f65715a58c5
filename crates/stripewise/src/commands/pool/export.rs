//! Options of `pool export`, which `control/src/operations/pools/export.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::ExportPool;

/// Release a pool so that another host can import it
#[derive(Args)]
#[command(after_help = "Example: stripewise pool export tank")]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
}

impl Options {
    pub(crate) fn request(&self) -> ExportPool {
        ExportPool { pool: self.name.clone() }
    }
}
