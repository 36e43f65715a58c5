//! Options of `pool create`, which `control/src/operations/pools/create.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::CreatePool;
use stripewise_control::size::ByteSize;

/// Create a pool from drives
#[derive(Args)]
#[command(after_help = "Example: stripewise pool create tank /dev/sdb /dev/sdc /dev/sdd --spare /dev/sde")]
pub(crate) struct Options {
    /// Pool name: letters, digits, - _ .
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Files, block devices, volumes of other pools (POOL/VOL), or exports of NBD servers
    /// (nbd://HOST/EXPORT)
    #[arg(value_name = "DRIVE", required = true)]
    drives: Vec<String>,
    /// Hot spare; may be given several times
    #[arg(long, value_name = "DRIVE")]
    spare: Vec<String>,
    /// Drive for the journal of small writes: an SSD; may be given several times. Use one more than
    /// the number of drive failures the layouts survive
    #[arg(long, value_name = "DRIVE")]
    journal: Vec<String>,
    /// Drive for frequently used data: an SSD beside hard disks; may be given several times
    #[arg(long, value_name = "DRIVE")]
    fast: Vec<String>,
    /// Allocation unit: a power of two from 1MiB to 128MiB [default: chosen from the drive sizes]
    #[arg(long, value_name = "SIZE")]
    slab: Option<ByteSize>,
    /// Overwrite drives that hold data
    #[arg(long)]
    force: bool,
}

impl Options {
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
