//! The command line of Stripewise: one file per command, one printer, one error style.

#![forbid(unsafe_code)]

mod candidates;
mod cli;
mod commands;
mod failure;
mod home;
mod names;
mod printer;
mod progress;
mod signatures;
mod size;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, DriveCommand};
use crate::commands::*;
use crate::failure::{Exit, Result};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let app = App { printer: printer::Printer::new(cli.json, cli.quiet) };
    let exit = run(&cli.command, &app).unwrap_or_else(|failure| {
        app.printer.failure(&failure);
        failure.exit
    });
    ExitCode::from(exit.code())
}

fn run(command: &Command, app: &App) -> Result<Exit> {
    match command {
        Command::Drive(DriveCommand::Make(options)) => drive_make::run(options, app),
    }
}
