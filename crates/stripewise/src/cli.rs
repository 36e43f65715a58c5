//! The command line as people type it. What each command does is in its own file under `commands/`.

use clap::{Parser, Subcommand};

use crate::commands::*;

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
pub struct Cli {
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
pub enum Command {
    Evaluate(evaluate::Options),
    /// Make files to use as drives; look at drives
    #[command(subcommand)]
    Drive(DriveCommand),
    /// Drives that belong together
    #[command(subcommand)]
    Pool(PoolCommand),
    /// RAID volumes in a pool
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Pools in virtual time
    #[command(subcommand)]
    Simulate(SimulateCommand),
    Serve(serve::Options),
    /// What a daemon tells when something happens to its pools
    #[command(subcommand)]
    Alert(AlertCommand),
    Mount(mount::Options),
}

impl Command {
    /// Whether it may take long because it does nothing but wait, or move bytes of a volume.
    pub fn lasts(&self) -> bool {
        match self {
            Self::Pool(command) => matches!(command, PoolCommand::Wait(_) | PoolCommand::Iostat(_)),
            Self::Volume(command) => matches!(command, VolumeCommand::Read(_) | VolumeCommand::Write(_)),
            _ => false,
        }
    }

    /// Whether it changes nothing, so that nobody need be told that it was asked for.
    pub fn only_looks(&self) -> bool {
        match self {
            Self::Pool(command) => matches!(
                command,
                PoolCommand::List(_)
                    | PoolCommand::Status(_)
                    | PoolCommand::Events(_)
                    | PoolCommand::Iostat(_)
            ),
            Self::Volume(command) => {
                matches!(command, VolumeCommand::List(_) | VolumeCommand::Show(_) | VolumeCommand::Read(_))
            }
            Self::Drive(command) => matches!(command, DriveCommand::Show(_)),
            _ => false,
        }
    }
}

/// Commands on alerts.
#[derive(Subcommand)]
pub enum AlertCommand {
    /// Have the daemon send a test alert by every way that it was given
    Test(alert_test::Options),
}

/// Commands on single drives.
#[derive(Subcommand)]
pub enum DriveCommand {
    /// Make files to use as drives: DIR/drive0.img, DIR/drive1.img, …
    Make(drive_make::Options),
    /// Show what drives hold: pool, role, state. Reads only
    Show(drive_show::Options),
}

/// Commands on pools.
#[derive(Subcommand)]
pub enum PoolCommand {
    /// Make a pool of drives
    Create(pool_create::Options),
    /// List the known pools
    List(pool_list::Options),
    /// Show how pools are, and what to do about it
    Status(pool_status::Options),
    /// Show what happened to a pool
    Events(pool_events::Options),
    /// Show what a pool's drives are doing
    Iostat(pool_iostat::Options),
    /// Find pools on drives and add them to the list
    Import(pool_import::Options),
    /// Take a pool off the list, to use its drives elsewhere
    Export(pool_export::Options),
    /// Put drives into a pool: for volumes, as spares, for journals, or as fast ones
    Add(pool_add::Options),
    /// Take a drive out of a pool for good: one that holds nothing of it
    Remove(pool_remove::Options),
    /// Empty a drive onto the others while everything goes on, then let go of it
    Retire(pool_retire::Options),
    /// Stop using a drive for a while
    Offline(pool_offline::Options),
    /// Use a drive again that was offline or away: what changed meanwhile is copied to it
    Online(pool_online::Options),
    /// Put a new drive in the place of an old or lost one, and rebuild onto it
    Replace(pool_replace::Options),
    /// Check every stripe, repair what is wrong, name the drive that lied
    Scrub(pool_scrub::Options),
    /// Work on the pool's jobs in the foreground until they are done
    Wait(pool_wait::Options),
    /// Change a setting of a pool
    Set(pool_set::Options),
    /// Erase a pool from its drives, with everything in it
    Destroy(pool_destroy::Options),
}

/// Commands on volumes.
#[derive(Subcommand)]
pub enum VolumeCommand {
    /// Make a volume with a RAID layout
    Create(volume_create::Options),
    /// List volumes
    List(volume_list::Options),
    /// Show a volume: layout, size, where it lies
    Show(volume_show::Options),
    /// Make a volume larger or smaller
    Resize(volume_resize::Options),
    /// Give a volume another layout while it is used
    Convert(volume_convert::Options),
    /// Keep a volume on fast drives or off them, or let it move as it is used
    Pin(volume_pin::Options),
    /// Copy bytes of a volume to standard output
    Read(volume_read::Options),
    /// Copy bytes from standard input into a volume
    Write(volume_write::Options),
    /// Erase a volume
    Delete(volume_delete::Options),
}

/// Commands on pools in virtual time.
#[derive(Subcommand)]
pub enum SimulateCommand {
    /// Lead random pools through every fault and check every promise
    Torture(simulate_torture::Options),
}
