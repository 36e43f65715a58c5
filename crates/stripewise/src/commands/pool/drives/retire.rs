//! `pool retire`: what can be typed; `control/src/operations/drives/retire.rs` carries it out.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::RetireDrive;

/// Migrate data off a drive online, then remove it
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// The drive: its path or identity
    #[arg(value_name = "DRIVE")]
    drive: String,
    /// Do it now, in the foreground, instead of whenever the pool's jobs are worked on
    #[arg(long)]
    wait: bool,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> RetireDrive {
        RetireDrive { pool: self.name.clone(), drive: self.drive.clone(), wait: self.wait }
    }
}
