//! Options of `lab run`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use stripewise_control::size::ByteSize;
use stripewise_lab::driver::fio;
use stripewise_lab::method::{Circumstances, RunSettings};

/// Measure a volume, device, file, directory or NBD export with a method
#[derive(Args)]
#[command(
    after_help = "Measuring writes to the target. An existing file or a device requires --force; in a directory, a \
                        temporary file is measured. `stripewise lab profiles` lists the methods.\n\n\
                        Example: stripewise lab run tank/data --profile crystaldiskmark"
)]
pub(crate) struct Options {
    /// POOL/VOL, a file, a block device, a directory, an nbd:// URI, or model:NAME with a drive or
    /// system of the catalogue; several targets are measured alternately
    #[arg(value_name = "TARGET", required = true)]
    pub(super) targets: Vec<String>,
    /// The method: a name from `lab profiles`, or a TOML file
    #[arg(long, value_name = "NAME|FILE")]
    pub(super) profile: String,
    /// Load generator
    #[arg(long, value_name = "native|fio", default_value = "native")]
    pub(super) driver: Driver,
    /// Size of the part of the target to use; several sizes are measured one after the other
    #[arg(long = "size", value_name = "SIZE")]
    pub(super) sizes: Vec<ByteSize>,
    /// Length of a run in seconds
    #[arg(long, value_name = "S")]
    pub(super) seconds: Option<f64>,
    /// Runs per figure
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) runs: Option<u32>,
    /// Add runs until the half-width of every 95 % confidence interval is at most PERCENT of its
    /// figure
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(super) within: Option<u32>,
    /// Maximum number of runs with --within
    #[arg(long, value_name = "N", default_value_t = 30, requires = "within",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) most_runs: u32,
    /// Take the target through a drive failure: normal, degraded, rebuilding, recovered
    #[arg(long, value_name = "NAME", requires = "hooks")]
    pub(super) scenario: Option<ScenarioName>,
    /// Commands that fail a drive of the target, replace it, and report the end of the rebuild
    #[arg(long, value_name = "FILE.toml", requires = "scenario")]
    pub(super) hooks: Option<PathBuf>,
    /// Hosts that run `fio --server`; each measures its own path TARGET, all at once
    #[arg(long, value_name = "HOST[:PORT],…", value_delimiter = ',', requires = "sizes")]
    pub(super) hosts: Vec<fio::Host>,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Total size of the drives' caches; figures of runs that fit into them are marked
    #[arg(long, value_name = "SIZE")]
    pub(super) drive_cache: Option<ByteSize>,
    /// Rate of the slowest link to the drives, in 10^6 bytes per second [default: the link of an
    /// NVMe device]
    #[arg(long, value_name = "MB/S")]
    pub(super) link: Option<f64>,
    /// Write nothing; skip measurements that write
    #[arg(long, conflicts_with = "force")]
    pub(super) read_only: bool,
    /// Overwrite the data on the target
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

/// Target half-width of the confidence intervals, as a fraction of the figure.
pub(super) fn within(options: &Options) -> Option<f64> {
    options.within.map(|percent| f64::from(percent) / 100.0)
}

/// Settings of every run.
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
