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
    /// Make files to use as drives; look at drives
    #[command(subcommand)]
    Drive(DriveCommand),
}

/// Commands on single drives.
#[derive(Subcommand)]
pub enum DriveCommand {
    /// Make files to use as drives: DIR/drive0.img, DIR/drive1.img, …
    Make(drive_make::Options),
}
