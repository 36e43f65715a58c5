//! The command-line grammar. Each command has its own file under `commands/`.

use clap::{Parser, Subcommand};
use stripewise_control::daemon::socket::frames::ListForm;
use stripewise_control::request::Request;

use crate::answer;
use crate::commands::*;
use crate::failure::Result;
use crate::report;

/// Place in the help of options that all commands have: after the command's own.
const LAST: usize = 900;

/// Software RAID in user space, with tools to measure, model and test it.
#[derive(Parser)]
#[command(
    name = "stripewise",
    version,
    max_term_width = 110,
    arg_required_else_help = true,
    after_help = "Sizes: K M G T and KiB MiB … are powers of 1024; KB MB GB TB are powers of 1000.\n\
                  Exit codes: 0 success, 1 failure, 2 usage error; `pool status` also 3: a pool is degraded.\n\
                  STRIPEWISE_HOME: directory of the pool registry (root: /var/lib/stripewise)."
)]
pub(crate) struct Cli {
    /// Print one JSON document to standard output
    #[arg(long, global = true, display_order = LAST)]
    pub json: bool,
    /// Suppress progress and notes on standard error
    #[arg(short, long, global = true, display_order = LAST + 1)]
    pub quiet: bool,
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand)]
pub(crate) enum Command {
    Evaluate(evaluate::Options),
    /// Measure any storage with published methods; keep and compare the results
    #[command(subcommand)]
    Lab(lab::LabCommand),
    /// Predict the performance and reliability of arrays; replay traces
    #[command(subcommand)]
    Model(model::ModelCommand),
    Advise(advise::Options),
    /// Create and inspect drives
    #[command(subcommand)]
    Drive(DriveCommand),
    /// Create and manage pools
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Create and manage volumes
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Take and manage snapshots of log volumes
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Run pools in virtual time
    #[command(subcommand)]
    Simulate(SimulateCommand),
    Serve(serve::Options),
    /// Manage alerts
    #[command(subcommand)]
    Alert(AlertCommand),
    Mount(mount::Options),
    Umount(umount::Options),
    Completions(completions::Options),
    Man(man::Options),
}

impl Command {
    /// The pool request of this command, which a daemon can execute as well; `None` for a command
    /// that runs only in its own process.
    pub(crate) fn request(&self) -> Result<Option<Request>> {
        Ok(Some(match self {
            Self::Pool(command) => return command.request(),
            Self::Volume(command) => command.request()?,
            Self::Snapshot(command) => command.request()?,
            Self::Drive(DriveCommand::List(options)) => options.request().into(),
            Self::Drive(DriveCommand::Show(options)) => options.request().into(),
            Self::Drive(DriveCommand::Locate(options)) => options.request().into(),
            Self::Drive(DriveCommand::Clear(options)) => options.request().into(),
            Self::Alert(AlertCommand::Test(options)) => options.request().into(),
            Self::Umount(options) => options.request().into(),
            Self::Drive(DriveCommand::Make(_) | DriveCommand::Measure(_))
            | Self::Evaluate(_)
            | Self::Lab(_)
            | Self::Model(_)
            | Self::Advise(_)
            | Self::Simulate(_)
            | Self::Serve(_)
            | Self::Mount(_)
            | Self::Completions(_)
            | Self::Man(_) => return Ok(None),
        }))
    }
}

impl Command {
    /// Form of the list that this command prints; fails for an unknown column.
    pub(crate) fn list_form(&self) -> Result<ListForm> {
        match self {
            Self::Pool(PoolCommand::List(options)) => options.list.form(&answer::POOL_COLUMNS),
            Self::Pool(PoolCommand::Events(options)) => options.list.form(&answer::EVENT_COLUMNS),
            Self::Pool(PoolCommand::Get(options)) => options.list.form(&answer::SETTING_COLUMNS),
            Self::Volume(VolumeCommand::List(options)) => options.list.form(&report::VOLUME_COLUMNS),
            Self::Snapshot(SnapshotCommand::List(options)) => options.list.form(&answer::SNAPSHOT_COLUMNS),
            Self::Drive(DriveCommand::List(options)) => options.list.form(&answer::DRIVE_COLUMNS),
            _ => Ok(ListForm::default()),
        }
    }
}

/// Commands on alerts.
#[derive(Subcommand)]
pub(crate) enum AlertCommand {
    /// Send a test alert through every configured channel
    Test(alert_test::Options),
}

/// Commands on single drives.
#[derive(Subcommand)]
pub(crate) enum DriveCommand {
    /// Create files to use as drives: DIR/drive0.img, DIR/drive1.img, …
    Make(drive::make::Options),
    /// Measure a drive and write a catalogue entry for the models
    Measure(drive::measure::Options),
    /// List the drives of pools
    List(drive::list::Options),
    /// Show the pool, role and state of drives; read-only
    Show(drive::show::Options),
    /// Switch the light of a drive's slot on or off, to find the drive
    Locate(drive::locate::Options),
    Clear(drive::clear::Options),
}

/// Commands on pools.
#[derive(Subcommand)]
pub(crate) enum PoolCommand {
    /// Create a pool from drives
    Create(pool::create::Options),
    /// List the known pools
    List(pool::list::Options),
    /// Show the state of pools and the next command to run
    Status(pool::status::Options),
    /// Show the history of a pool
    Events(pool::events::Options),
    /// Show I/O statistics of a pool's drives
    Iostat(pool::iostat::Options),
    Advise(pool::advise::Options),
    /// List the pools found on drives, or import them
    Import(pool::import::Options),
    /// Release a pool so that another host can import it
    Export(pool::export::Options),
    /// Rename a pool
    Rename(pool::rename::Options),
    /// Add drives to a pool: data, spare, journal or fast
    Add(pool::drives::add::Options),
    /// Remove a drive that holds no data of the pool
    Remove(pool::drives::remove::Options),
    /// Migrate data off a drive online, then remove it
    Retire(pool::drives::retire::Options),
    /// Take a drive offline temporarily
    Offline(pool::drives::offline::Options),
    /// Bring a drive back online and resync the data that changed in its absence
    Online(pool::drives::online::Options),
    /// Replace a drive; a working drive stays in use until the copy is complete
    Replace(pool::drives::replace::Options),
    Grow(pool::drives::grow::Options),
    /// Verify every stripe, repair errors and report the drives that caused them
    Scrub(pool::jobs::scrub::Options),
    /// Reset error counters and acknowledge drive conditions
    Clear(pool::drives::clear::Options),
    /// Spread volumes over all data drives to make their free space usable
    Rebalance(pool::jobs::rebalance::Options),
    /// Run a pool's jobs in the foreground until they are complete
    Wait(pool::jobs::wait::Options),
    /// Change settings of a pool
    Set(pool::set::Options),
    /// Show the settings of a pool
    Get(pool::get::Options),
    /// Destroy a pool and all of its volumes
    Destroy(pool::destroy::Options),
}

impl PoolCommand {
    fn request(&self) -> Result<Option<Request>> {
        Ok(Some(match self {
            Self::Create(options) => options.request().into(),
            Self::List(options) => options.request().into(),
            Self::Status(options) => options.request().into(),
            Self::Events(options) => options.request().into(),
            Self::Iostat(options) => options.request().into(),
            Self::Import(options) => options.request().into(),
            Self::Export(options) => options.request().into(),
            Self::Rename(options) => options.request().into(),
            Self::Add(options) => options.request().into(),
            Self::Remove(options) => options.request().into(),
            Self::Retire(options) => options.request().into(),
            Self::Offline(options) => options.request().into(),
            Self::Online(options) => options.request().into(),
            Self::Replace(options) => options.request().into(),
            Self::Grow(options) => options.request().into(),
            Self::Scrub(options) => options.request().into(),
            Self::Clear(options) => options.request().into(),
            Self::Rebalance(options) => options.request().into(),
            Self::Wait(options) => options.request().into(),
            Self::Set(options) => options.request().into(),
            Self::Get(options) => options.request().into(),
            Self::Destroy(options) => options.request().into(),
            Self::Advise(_) => return Ok(None),
        }))
    }
}

/// Commands on volumes.
#[derive(Subcommand)]
pub(crate) enum VolumeCommand {
    /// Create a volume with a RAID layout
    Create(volume::create::Options),
    /// List volumes
    List(volume::list::Options),
    /// Show a volume: layout, size, drives
    Show(volume::show::Options),
    /// Grow or shrink a volume
    Resize(volume::resize::Options),
    /// Convert a volume to another layout online
    Convert(volume::convert::Options),
    /// Pin a volume to fast or slow drives, or tier it automatically
    Pin(volume::pin::Options),
    /// Change settings of a volume: automatic snapshots of a log volume
    Set(volume::set::Options),
    /// Copy data from a volume to standard output
    Read(volume::read::Options),
    /// Copy data from standard input into a volume
    Write(volume::write::Options),
    /// Delete a volume
    Delete(volume::delete::Options),
}

impl VolumeCommand {
    fn request(&self) -> Result<Request> {
        Ok(match self {
            Self::Create(options) => options.request()?.into(),
            Self::List(options) => options.request().into(),
            Self::Show(options) => options.request().into(),
            Self::Resize(options) => options.request().into(),
            Self::Convert(options) => options.request()?.into(),
            Self::Pin(options) => options.request().into(),
            Self::Set(options) => options.request().into(),
            Self::Read(options) => options.request().into(),
            Self::Write(options) => options.request().into(),
            Self::Delete(options) => options.request().into(),
        })
    }
}

/// Commands on snapshots.
#[derive(Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Take snapshots of log volumes; those of one pool are of one instant
    Create(snapshot::create::Options),
    /// List snapshots
    List(snapshot::list::Options),
    /// Show the ranges in which two snapshots of a volume differ
    Diff(snapshot::diff::Options),
    /// Give a volume the contents of a snapshot; all later writes are lost
    Rollback(snapshot::rollback::Options),
    /// Delete snapshots and free the space that only they hold
    Delete(snapshot::delete::Options),
    /// Create a volume that begins as a snapshot and shares its blocks
    Clone(snapshot::clone::Options),
    /// Write a snapshot to standard output as a stream, whole or what changed since an older one
    Send(snapshot::send::Options),
    /// Read a stream of `snapshot send` from standard input into a volume
    Receive(snapshot::receive::Options),
}

impl SnapshotCommand {
    fn request(&self) -> Result<Request> {
        Ok(match self {
            Self::Create(options) => options.request().into(),
            Self::List(options) => options.request().into(),
            Self::Diff(options) => options.request().into(),
            Self::Rollback(options) => options.request().into(),
            Self::Delete(options) => options.request().into(),
            Self::Clone(options) => options.request().into(),
            Self::Send(options) => options.request().into(),
            Self::Receive(options) => options.request()?.into(),
        })
    }
}

/// Commands on pools in virtual time.
#[derive(Subcommand)]
pub(crate) enum SimulateCommand {
    /// Run random pools through faults and check every guarantee
    Torture(simulate_torture::Options),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// The commands that have none below them.
    fn leaves(command: &clap::Command, path: &str, found: &mut Vec<(String, clap::Command)>) {
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            let path = format!("{path} {}", below.get_name());
            match below.has_subcommands() {
                true => leaves(below, &path, found),
                false => found.push((path.trim().to_owned(), below.clone())),
            }
        }
    }

    fn all() -> Vec<(String, clap::Command)> {
        let (mut command, mut found) = (Cli::command(), Vec::new());
        command.build();
        leaves(&command, "", &mut found);
        found
    }

    #[test]
    fn each_command_has_an_example_that_parses() {
        for (path, command) in all() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples: Vec<&str> = help
                .lines()
                .filter_map(|line| {
                    line.trim_start().trim_start_matches("Example: ").strip_prefix("stripewise ")
                })
                .collect();
            let is_own = |example: &&str| example.starts_with(&format!("{path} ")) || *example == path;
            assert!(examples.iter().any(is_own), "`{path}` has no example: {help}");
            for example in examples {
                // The rest is for the shell.
                let words = example.split(['<', '>', '|']).next().unwrap_or_default().split_whitespace();
                let parsed = Cli::try_parse_from(std::iter::once("stripewise").chain(words));
                assert!(
                    parsed.is_ok(),
                    "{example}: {}",
                    parsed.err().map(|e| e.to_string()).unwrap_or_default()
                );
            }
        }
    }

    #[test]
    fn options_of_all_commands_come_last_in_the_help() {
        for (path, mut command) in all() {
            let help = command.render_help().to_string();
            let option = |line: &&str| line.starts_with("  ") && line.trim_start().starts_with('-');
            let names: Vec<&str> = help.lines().filter(option).map(str::trim_start).collect();
            let place = |name: &str| names.iter().position(|option| option.starts_with(name));
            let (json, quiet, help) = (place("--json"), place("-q"), place("-h"));
            assert!(json < quiet && quiet < help && help == names.len().checked_sub(1), "{path}: {names:?}");
            assert_eq!(json, names.len().checked_sub(3), "{path}: {names:?}");
        }
    }
}
