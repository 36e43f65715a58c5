//! Options of `pool rebalance`, which `control/src/operations/jobs/rebalance.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::Rebalance;

/// Spread volumes over all data drives to make their free space usable. If a daemon serves the
/// pool, the daemon does it and the command returns at once
#[derive(Args)]
#[command(after_help = "Example: stripewise pool rebalance tank --wait")]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Return when the rebalance is complete, also if a daemon does it
    #[arg(long)]
    wait: bool,
    /// Stop a running rebalance; data already moved stays where it is
    #[arg(long, conflicts_with = "wait")]
    stop: bool,
}

impl Options {
    pub(crate) fn request(&self) -> Rebalance {
        Rebalance { pool: self.name.clone(), wait: self.wait, stop: self.stop }
    }
}
