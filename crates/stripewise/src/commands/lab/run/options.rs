//! What is asked of `lab run`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use stripewise_control::size::ByteSize;
use stripewise_lab::driver::fio;
use stripewise_lab::method::{Circumstances, RunSettings};

/// Measure a volume, device, file, directory or NBD export with a method
#[derive(Args)]
#[command(
    after_help = "Measuring writes to the target. An existing file or a device needs --force; a folder gets a \
                        file of its own, which is removed again. `stripewise lab profiles` lists the methods."
)]
pub(crate) struct Options {
    /// POOL/VOL, a file, a block device, a folder, an nbd:// URI, or model:NAME with a drive or
    /// system of the catalogue; several are measured in turns
    #[arg(value_name = "TARGET", required = true)]
    pub(super) targets: Vec<String>,
    /// The method: a name of `lab profiles`, or a TOML file
    #[arg(long, value_name = "NAME|FILE")]
    pub(super) profile: String,
    /// What drives the load
    #[arg(long, value_name = "native|fio", default_value = "native")]
    pub(super) driver: Driver,
    /// How much of the target is used; several sizes are measured one after the other
    #[arg(long = "size", value_name = "SIZE")]
    pub(super) sizes: Vec<ByteSize>,
    /// Length of a run
    #[arg(long, value_name = "S")]
    pub(super) seconds: Option<f64>,
    /// Runs per figure
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) runs: Option<u32>,
    /// More runs, until half of every 95 % interval is at most PERCENT of its figure
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) within: Option<u32>,
    /// But not more runs than this
    #[arg(long, value_name = "N", default_value_t = 30, requires = "within",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) most_runs: u32,
    /// Take the target through a failure: normal, degraded, rebuilding, recovered
    #[arg(long, value_name = "NAME", requires = "hooks")]
    pub(super) scenario: Option<ScenarioName>,
    /// The commands that fail and replace a drive of the target, and say when it is rebuilt
    #[arg(long, value_name = "FILE.toml", requires = "scenario")]
    pub(super) hooks: Option<PathBuf>,
    /// Hosts with a server of fio's (`fio --server`), which measure the path TARGET on themselves,
    /// all at once
    #[arg(long, value_name = "HOST[:PORT],…", value_delimiter = ',', requires = "sizes")]
    pub(super) hosts: Vec<fio::Host>,
    /// Where all random choices start
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// What the drives' own caches hold together: figures of shorter runs say so
    #[arg(long, value_name = "SIZE")]
    pub(super) drive_cache: Option<ByteSize>,
    /// What the slowest link to the drives carries, 10^6 bytes a second [default: an NVMe device's
    /// own]
    #[arg(long, value_name = "MB/S")]
    pub(super) link: Option<f64>,
    /// Write nothing: measurements that write are left out
    #[arg(long, conflicts_with = "force")]
    pub(super) read_only: bool,
    /// Overwrite what the target holds
    #[arg(long)]
    pub(super) force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Driver {
    Native,
    Fio,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ScenarioName {
    Failure,
}

/// How narrow intervals are to be.
pub(super) fn within(options: &Options) -> Option<f64> {
    options.within.map(|percent| f64::from(percent) / 100.0)
}

/// What is asked of every run.
pub(super) fn settings(options: &Options, size_bytes: u64, circumstances: Circumstances) -> RunSettings {
    RunSettings {
        runs: options.runs,
        within: within(options),
        most_runs: options.most_runs,
        seconds: options.seconds,
        size_bytes,
        may_write: !options.read_only,
        fills: true,
        ramp_seconds: 0.0,
        virtual_time: false,
        seed: options.seed,
        circumstances,
    }
}
