//! Options of `pool import`, which `control/src/operations/pools/import.rs` executes.

use std::path::PathBuf;

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::ImportPools;

/// List the pools found on drives, or import them
#[derive(Args)]
#[command(after_help = "Example: stripewise pool import --dir /srv/drives tank")]
pub(crate) struct Options {
    /// Search the files in this directory (not its subdirectories); may be given several times
    /// [default without --drive: the current directory and all block devices]
    #[arg(long = "dir", value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Search this drive: a path or an NBD URI; may be given several times
    #[arg(long = "drive", value_name = "DRIVE")]
    drives: Vec<String>,
    /// The pool to import: its name or ID. Without POOL and --all, the command only lists the pools
    /// that it finds
    #[arg(value_name = "POOL")]
    pool: Option<String>,
    /// Import all pools found, except those on volumes of other pools or with network drives, which
    /// must be named
    #[arg(long, conflicts_with = "pool")]
    all: bool,
    /// Import the pool under a new name
    #[arg(long = "as", value_name = "NEWNAME", requires = "pool")]
    new_name: Option<PoolName>,
    /// Import a pool that another host last used and did not export; that host must no longer use
    /// it. Also accept drives restored from older copies if volumes cannot be read without them:
    /// data written since those copies is lost or inconsistent
    #[arg(long)]
    force: bool,
    /// Give a copy of a pool (a snapshot or clone of all its drives) an identity of its own, so
    /// that it can be used beside the original. Name the copied drives alone, with --dir or --drive
    #[arg(long, requires = "pool")]
    new_identity: bool,
    /// List destroyed pools, or bring the named one back. That is possible until too many of its
    /// drives were used for something else
    #[arg(long, conflicts_with = "all")]
    destroyed: bool,
}

impl Options {
    pub(crate) fn request(&self) -> ImportPools {
        ImportPools {
            folders: self.folders.clone(),
            drives: self.drives.clone(),
            pool: self.pool.clone(),
            all: self.all,
            new_name: self.new_name.clone(),
            force: self.force,
            new_identity: self.new_identity,
            destroyed: self.destroyed,
        }
    }
}
