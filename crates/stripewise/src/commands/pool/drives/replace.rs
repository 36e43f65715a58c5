//! `pool replace`: what can be typed; `control/src/operations/drives/replace.rs` carries it out.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::ReplaceDrive;

/// Replace a drive: a working one stays in use until the new one is full, a lost one is rebuilt
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// The drive that goes: its path or URI, last path, or identity
    #[arg(value_name = "OLD")]
    old: String,
    /// The drive that comes: a file, block device, volume or NBD URI, or the identity of one of the
    /// pool's spares
    #[arg(value_name = "NEW")]
    new: String,
    /// Overwrite the new drive even if it holds something
    #[arg(long)]
    force: bool,
    /// Rebuild now, in the foreground, instead of whenever the pool's jobs are worked on
    #[arg(long)]
    wait: bool,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ReplaceDrive {
        ReplaceDrive {
            pool: self.name.clone(),
            old: self.old.clone(),
            new: self.new.clone(),
            force: self.force,
            wait: self.wait,
        }
    }
}
