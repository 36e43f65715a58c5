//! Options of `pool set`, which `control/src/operations/pools/set.rs` executes.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::{ChangeSettings, Setting};

/// Change settings of a pool
#[derive(Args)]
#[command(after_help = "Example: stripewise pool set tank scrub=weekly rebuild-priority=high")]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// scrub=monthly|weekly|daily|DAYSd|off: interval between automatic scrubs (30d);
    /// patrol-rate=RATE|none: maximum scrub rate in bytes per second (20MB);
    /// rebuild-priority=low|medium|high|1..100: percentage of drive time for rebuilds under load;
    /// rebuild-latency=TIME|off: maximum delay that a rebuild adds to a client's request on a drive
    /// (20ms);
    /// space-warning=1..100: percentage of used space at which the status warns;
    /// tier-rate=RATE|off: maximum rate of migration between fast and data drives in bytes per
    /// second (100MB); off: as the rebuild priority allows
    #[arg(value_name = "SETTING=VALUE", required = true)]
    settings: Vec<Setting>,
}

impl Options {
    pub(crate) fn request(&self) -> ChangeSettings {
        ChangeSettings { pool: self.name.clone(), settings: self.settings.clone() }
    }
}
