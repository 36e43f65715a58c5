//! Options of `pool rename`, which `control/src/operations/pools/rename.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::RenamePool;

/// Rename a pool
#[derive(Args)]
#[command(after_help = "Example: stripewise pool rename tank vault")]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// New name: letters, digits, - _ .
    #[arg(value_name = "NEWNAME")]
    new_name: PoolName,
}

impl Options {
    pub(crate) fn request(&self) -> RenamePool {
        RenamePool { pool: self.name.clone(), new_name: self.new_name.clone() }
    }
}
