//! `pool online`: what can be typed; `control/src/operations/drives/online.rs` carries it out.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::BringOnline;

/// Bring a drive back online, and copy to it what changed while it was away
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// The drive: its path or NBD URI, also a new one, or its identity
    #[arg(value_name = "DRIVE")]
    drive: String,
    /// Copy now, in the foreground, instead of whenever the pool's jobs are worked on
    #[arg(long)]
    wait: bool,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> BringOnline {
        BringOnline { pool: self.name.clone(), drive: self.drive.clone(), wait: self.wait }
    }
}
