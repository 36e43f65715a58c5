//! `pool export`: what can be typed; `control/src/operations/pools/export.rs` carries it out.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::ExportPool;

/// Release a pool, so that another host can import it
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ExportPool {
        ExportPool { pool: self.name.clone() }
    }
}
