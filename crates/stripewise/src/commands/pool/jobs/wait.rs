//! `pool wait`: what can be typed; `control/src/operations/jobs/wait.rs` carries it out.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::WaitForJob;
use stripewise_engine::pool::JobKind;

/// Run a pool's jobs in the foreground until they are done
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// rebuild, scrub, convert, destage, tier or rebalance
    #[arg(value_name = "JOB")]
    kind: JobKind,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> WaitForJob {
        WaitForJob { pool: self.name.clone(), job: self.kind }
    }
}
