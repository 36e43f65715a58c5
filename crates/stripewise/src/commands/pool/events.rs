//! `pool events`: what can be typed; `control/src/operations/pools/events.rs` carries it out.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::ListEvents;

/// Show the history of a pool
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Only the last so many
    #[arg(long, value_name = "N")]
    last: Option<usize>,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ListEvents {
        ListEvents { pool: self.name.clone(), last: self.last }
    }
}
