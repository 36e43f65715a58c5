//! `pool create`: what can be typed; `control/src/operations/pools/create.rs` carries it out.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::CreatePool;
use stripewise_control::size::ByteSize;

/// Create a pool from drives
#[derive(Args)]
pub(crate) struct Options {
    /// Its name: letters, digits, - _ .
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Files, block devices, volumes of other pools (POOL/VOL), or exports of NBD servers
    /// (nbd://HOST/EXPORT)
    #[arg(value_name = "DRIVE", required = true)]
    drives: Vec<String>,
    /// A drive that takes over by itself when another fails
    #[arg(long, value_name = "DRIVE")]
    spare: Vec<String>,
    /// A drive that takes small writes first: an SSD. As many as the layouts survive losses, and
    /// one more
    #[arg(long, value_name = "DRIVE")]
    journal: Vec<String>,
    /// A drive for what is asked for most: an SSD beside hard disks
    #[arg(long, value_name = "DRIVE")]
    fast: Vec<String>,
    /// Space is handed out in pieces of this size: a power of two, 1MiB to 128MiB; chosen from the
    /// drives if left out
    #[arg(long, value_name = "SIZE")]
    slab: Option<ByteSize>,
    /// Overwrite drives that hold something
    #[arg(long)]
    force: bool,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> CreatePool {
        CreatePool {
            pool: self.name.clone(),
            drives: self.drives.clone(),
            spares: self.spare.clone(),
            journals: self.journal.clone(),
            fast: self.fast.clone(),
            slab_bytes: self.slab.map(|size| size.0),
            force: self.force,
        }
    }
}
