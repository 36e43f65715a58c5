//! Options of `pool wait`, which `control/src/operations/jobs/wait.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::WaitForJob;
use stripewise_pool::JobKind;

/// Run a pool's jobs in the foreground until they are complete
#[derive(Args)]
#[command(after_help = "Example: stripewise pool wait tank rebuild")]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Kind of job: rebuild, scrub, convert, destage, tier or rebalance
    #[arg(value_name = "JOB")]
    kind: JobKind,
}

impl Options {
    pub(crate) fn request(&self) -> WaitForJob {
        WaitForJob { pool: self.name.clone(), job: self.kind }
    }
}
