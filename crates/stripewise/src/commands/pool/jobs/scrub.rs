//! Options of `pool scrub`, which `control/src/operations/jobs/scrub.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::Scrub;

/// Verify every stripe, repair errors and report the drives that caused them
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Scrub in the foreground and return when it is complete
    #[arg(long)]
    wait: bool,
}

impl Options {
    pub(crate) fn request(&self) -> Scrub {
        Scrub { pool: self.name.clone(), wait: self.wait }
    }
}
