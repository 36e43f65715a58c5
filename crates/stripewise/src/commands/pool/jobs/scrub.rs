//! Options of `pool scrub`, which `control/src/operations/jobs/scrub.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::Scrub;

/// Verify every stripe, repair errors and report the drives that caused them. If a daemon serves
/// the pool, the daemon scrubs and the command returns at once
#[derive(Args)]
#[command(after_help = "Example: stripewise pool scrub tank --check-only")]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Return when the scrub is complete, also if a daemon does it
    #[arg(long)]
    wait: bool,
    /// Read and compare in the foreground, report each wrong place, write nothing
    #[arg(long, conflicts_with = "wait")]
    check_only: bool,
}

impl Options {
    pub(crate) fn request(&self) -> Scrub {
        Scrub { pool: self.name.clone(), wait: self.wait, check_only: self.check_only }
    }
}
