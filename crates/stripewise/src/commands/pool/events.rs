//! Options of `pool events`, which `control/src/operations/pools/events.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::ListEvents;

use crate::commands::list_options::ListOptions;

/// Show the history of a pool
#[derive(Args)]
#[command(after_help = "Example: stripewise pool events tank --last 20")]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Show only the last N events
    #[arg(long, value_name = "N")]
    last: Option<usize>,
    #[command(flatten)]
    pub(crate) list: ListOptions,
}

impl Options {
    pub(crate) fn request(&self) -> ListEvents {
        ListEvents { pool: self.name.clone(), last: self.last }
    }
}
