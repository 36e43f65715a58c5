//! `pool import`: what can be typed; `control/src/operations/pools/import.rs` carries it out.

use std::path::PathBuf;

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::ImportPools;

/// Find pools on drives: list them, or import those that are named
#[derive(Args)]
pub(crate) struct Options {
    /// Look at the files in this folder (not below it); may be given several times. Without it and
    /// --drive: the current folder and all block devices
    #[arg(long = "dir", value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Look at this drive: a path or an NBD URI; may be given several times
    #[arg(long = "drive", value_name = "DRIVE")]
    drives: Vec<String>,
    /// Import this pool, by name or identity, wherever it is; without it and --all: list what was
    /// found
    #[arg(value_name = "POOL")]
    pool: Option<String>,
    /// Import all that were found; not those on volumes of other pools or with drives on other
    /// machines, which must be named
    #[arg(long, conflicts_with = "pool")]
    all: bool,
    /// Give the pool another name
    #[arg(long = "as", value_name = "NEWNAME", requires = "pool")]
    new_name: Option<PoolName>,
    /// Take the pool although another host has it, and did not export it: that host must not use it
    /// any more. And take drives that were put back from older copies as they are, where volumes
    /// cannot be read without them: what was written since those copies were made is lost, or
    /// disagrees
    #[arg(long)]
    force: bool,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ImportPools {
        ImportPools {
            folders: self.folders.clone(),
            drives: self.drives.clone(),
            pool: self.pool.clone(),
            all: self.all,
            new_name: self.new_name.clone(),
            force: self.force,
        }
    }
}
