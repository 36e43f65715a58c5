//! The command line of Stripewise: one file per command, one printer, one error style.

#![forbid(unsafe_code)]

mod candidates;
mod cli;
mod commands;
mod contents;
mod drive_names;
mod failure;
mod home;
mod jobs;
mod left_word;
mod names;
mod nest;
mod pieces;
mod printer;
mod progress;
mod report;
mod session;
mod signatures;
mod size;
mod times;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, DriveCommand, PoolCommand, SimulateCommand, VolumeCommand};
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
        Command::Evaluate(options) => evaluate::run(options, app),
        Command::Drive(command) => match command {
            DriveCommand::Make(options) => drive_make::run(options, app),
            DriveCommand::Show(options) => drive_show::run(options, app),
        },
        Command::Pool(command) => match command {
            PoolCommand::Create(options) => pool_create::run(options, app),
            PoolCommand::List(options) => pool_list::run(options, app),
            PoolCommand::Status(options) => pool_status::run(options, app),
            PoolCommand::Import(options) => pool_import::run(options, app),
            PoolCommand::Export(options) => pool_export::run(options, app),
            PoolCommand::Events(options) => pool_events::run(options, app),
            PoolCommand::Iostat(options) => pool_iostat::run(options, app),
            PoolCommand::Add(options) => pool_add::run(options, app),
            PoolCommand::Remove(options) => pool_remove::run(options, app),
            PoolCommand::Retire(options) => pool_retire::run(options, app),
            PoolCommand::Offline(options) => pool_offline::run(options, app),
            PoolCommand::Online(options) => pool_online::run(options, app),
            PoolCommand::Replace(options) => pool_replace::run(options, app),
            PoolCommand::Scrub(options) => pool_scrub::run(options, app),
            PoolCommand::Wait(options) => pool_wait::run(options, app),
            PoolCommand::Set(options) => pool_set::run(options, app),
            PoolCommand::Destroy(options) => pool_destroy::run(options, app),
        },
        Command::Volume(command) => match command {
            VolumeCommand::Create(options) => volume_create::run(options, app),
            VolumeCommand::List(options) => volume_list::run(options, app),
            VolumeCommand::Show(options) => volume_show::run(options, app),
            VolumeCommand::Resize(options) => volume_resize::run(options, app),
            VolumeCommand::Convert(options) => volume_convert::run(options, app),
            VolumeCommand::Pin(options) => volume_pin::run(options, app),
            VolumeCommand::Read(options) => volume_read::run(options, app),
            VolumeCommand::Write(options) => volume_write::run(options, app),
            VolumeCommand::Delete(options) => volume_delete::run(options, app),
        },
        Command::Simulate(SimulateCommand::Torture(options)) => simulate_torture::run(options, app),
    }
}
