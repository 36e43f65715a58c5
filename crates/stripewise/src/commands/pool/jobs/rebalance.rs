//! `pool rebalance`: what can be typed; `control/src/operations/jobs/rebalance.rs` carries it out.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::Rebalance;

/// Spread volumes over all data drives, so that free space can be used
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Do it now, in the foreground, instead of whenever the pool's jobs are worked on
    #[arg(long)]
    wait: bool,
    /// Stop a rebalance; what has moved stays where it is
    #[arg(long, conflicts_with = "wait")]
    stop: bool,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> Rebalance {
        Rebalance { pool: self.name.clone(), wait: self.wait, stop: self.stop }
    }
}
