//! `pool scrub`: what can be typed; `control/src/operations/jobs/scrub.rs` carries it out.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::Scrub;

/// Verify every stripe, repair errors, and name the drive that caused them
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Do it now, in the foreground, instead of whenever the pool's jobs are worked on
    #[arg(long)]
    wait: bool,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> Scrub {
        Scrub { pool: self.name.clone(), wait: self.wait }
    }
}
