//! `pool set`: what can be typed; `control/src/operations/pools/set.rs` carries it out.

use clap::Args;
use stripewise_control::names::PoolName;
use stripewise_control::request::{ChangeSettings, Setting};

/// Change settings of a pool
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// rebuild-priority=low|medium|high|1..100: percent of each drive's time that rebuilds get
    /// while there is other load; rebuild-latency=TIME|off: a rebuild adds at most so much to what
    /// a client's request waits for a drive, as in 20ms; patrol-rate=RATE|none: a scrub reads at
    /// most so much per second, as in 20MB; patrol-interval=DAYS|none: a scrub begins by itself so
    /// long after the last one; space-warning=1..100: percent of the space in use from which on the
    /// status warns; tier-rate=RATE|off: at most so much per second is moved between fast and data
    /// drives, as in 100MB; off: as much as the rebuild priority gives
    #[arg(value_name = "SETTING=VALUE", required = true)]
    settings: Vec<Setting>,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ChangeSettings {
        ChangeSettings { pool: self.name.clone(), settings: self.settings.clone() }
    }
}
