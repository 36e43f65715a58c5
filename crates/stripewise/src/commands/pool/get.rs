//! Options of `pool get`, which `control/src/operations/pools/get.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::GetSettings;

use crate::commands::list_options::ListOptions;

/// Show the settings of a pool, as `pool set` takes them
#[derive(Args)]
#[command(after_help = "Example: stripewise pool get tank scrub")]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Print the value of this setting only
    #[arg(value_name = "KEY")]
    key: Option<String>,
    #[command(flatten)]
    pub(crate) list: ListOptions,
}

impl Options {
    pub(crate) fn request(&self) -> GetSettings {
        GetSettings { pool: self.name.clone(), key: self.key.clone() }
    }
}
