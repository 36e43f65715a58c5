//! The command line as people type it. What each command does is in its own file under `commands/`.

use clap::{Parser, Subcommand};
use stripewise_control::request::Request;

use crate::commands::*;
use crate::failure::Result;

/// Software RAID in user space, and the laboratory that proves it.
#[derive(Parser)]
#[command(
    name = "stripewise",
    version,
    max_term_width = 110,
    arg_required_else_help = true,
    after_help = "Sizes: K M G T and KiB MiB … are powers of 1024; KB MB GB TB powers of 1000.\n\
                  Exit codes: 0 done, 1 could not be done, 2 wrong usage; `pool status` also 3: works, but degraded.\n\
                  STRIPEWISE_HOME names the folder with the list of pools (root: /var/lib/stripewise)."
)]
pub(crate) struct Cli {
    /// Print one JSON document on standard output
    #[arg(long, global = true)]
    pub json: bool,
    /// No progress and no notes on standard error
    #[arg(short, long, global = true)]
    pub quiet: bool,
    #[command(subcommand)]
    pub command: Command,
}

/// What can be done.
#[derive(Subcommand)]
pub(crate) enum Command {
    Evaluate(evaluate::Options),
    /// Measure any storage with the published methods; keep and compare results
    #[command(subcommand)]
    Lab(lab::LabCommand),
    /// Predict what arrays do and how reliable they are; replay measured traces
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
    /// Run pools in virtual time
    #[command(subcommand)]
    Simulate(SimulateCommand),
    Serve(serve::Options),
    /// Manage alerts
    #[command(subcommand)]
    Alert(AlertCommand),
    Mount(mount::Options),
}

impl Command {
    /// What it asks of pools, where it does, so that a daemon can carry it out as well; `None` for
    /// what a process does by itself.
    pub(crate) fn request(&self) -> Result<Option<Request>> {
        Ok(Some(match self {
            Self::Pool(command) => return command.request(),
            Self::Volume(command) => command.request()?,
            Self::Drive(DriveCommand::Show(options)) => options.request().into(),
            Self::Alert(AlertCommand::Test(options)) => options.request().into(),
            Self::Drive(DriveCommand::Make(_) | DriveCommand::Measure(_))
            | Self::Evaluate(_)
            | Self::Lab(_)
            | Self::Model(_)
            | Self::Advise(_)
            | Self::Simulate(_)
            | Self::Serve(_)
            | Self::Mount(_) => return Ok(None),
        }))
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
    /// Measure a drive, and write an entry that models take as a drive
    Measure(drive::measure::Options),
    /// Show the pool, role and state of drives; read-only
    Show(drive::show::Options),
}

/// Commands on pools.
#[derive(Subcommand)]
pub(crate) enum PoolCommand {
    /// Create a pool from drives
    Create(pool::create::Options),
    /// List the known pools
    List(pool::list::Options),
    /// Show the state of pools, and the next command to run
    Status(pool::status::Options),
    /// Show the history of a pool
    Events(pool::events::Options),
    /// Show I/O statistics of a pool's drives
    Iostat(pool::iostat::Options),
    Advise(pool::advise::Options),
    /// Find pools on drives: list them, or import those that are named
    Import(pool::import::Options),
    /// Release a pool, so that another host can import it
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
    /// Bring a drive back online, and copy to it what changed while it was away
    Online(pool::drives::online::Options),
    /// Replace a drive: a working one stays in use until the new one is full, a lost one is rebuilt
    Replace(pool::drives::replace::Options),
    /// Verify every stripe, repair errors, and name the drive that caused them
    Scrub(pool::jobs::scrub::Options),
    /// Reset error counts and acknowledge what the status reports of drives
    Clear(pool::drives::clear::Options),
    /// Spread volumes over all data drives, so that free space can be used
    Rebalance(pool::jobs::rebalance::Options),
    /// Run a pool's jobs in the foreground until they are done
    Wait(pool::jobs::wait::Options),
    /// Change a setting of a pool
    Set(pool::set::Options),
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
            Self::Scrub(options) => options.request().into(),
            Self::Clear(options) => options.request().into(),
            Self::Rebalance(options) => options.request().into(),
            Self::Wait(options) => options.request().into(),
            Self::Set(options) => options.request().into(),
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
    /// Pin a volume to fast or slow drives, or let its data move with use
    Pin(volume::pin::Options),
    /// Copy bytes of a volume to standard output
    Read(volume::read::Options),
    /// Copy bytes from standard input into a volume
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
            Self::Read(options) => options.request().into(),
            Self::Write(options) => options.request().into(),
            Self::Delete(options) => options.request().into(),
        })
    }
}

/// Commands on pools in virtual time.
#[derive(Subcommand)]
pub(crate) enum SimulateCommand {
    /// Run random pools through faults, and check every promise
    Torture(simulate_torture::Options),
}
