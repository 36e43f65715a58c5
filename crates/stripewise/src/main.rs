//! The command line of Stripewise: one file per command, one printer, one error style.

#![forbid(unsafe_code)]

mod carry_out;
mod cli;
mod commands;
mod dispatch;
mod failure;
mod http;
mod input;
mod jobs;
mod log;
mod pass_on;
mod printer;
mod progress;
mod report;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, DriveCommand, PoolCommand, SimulateCommand};
use crate::commands::*;
use crate::failure::{Exit, Failure, Result};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return wrong_usage(&error),
    };
    let app = App::of_this_process(printer::Printer::new(cli.json, cli.quiet));
    let exit = run(&cli.command, &app).unwrap_or_else(|failure| {
        app.printer.failure(&failure);
        Exit::of(&failure)
    });
    log::flush();
    ExitCode::from(exit.code())
}

/// A command line that makes no sense, or one that asks for help. With `--json` the first is a
/// document, too.
fn wrong_usage(error: &clap::Error) -> ExitCode {
    let wants_json = std::env::args_os().any(|word| word == "--json");
    if error.use_stderr() && wants_json {
        let _ = printer::write_out(printer::usage_document(error).as_bytes());
    }
    let _ = error.print();
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

fn run(command: &Command, app: &App) -> Result<Exit> {
    match command {
        // These use no pool, or pools of their own.
        Command::Evaluate(options) => evaluate::run(options, app),
        Command::Lab(command) => lab::run(command, app),
        Command::Model(command) => model::run(command, app),
        Command::Advise(options) => advise::run(options, app),
        Command::Drive(DriveCommand::Make(options)) => drive_make::run(options, app),
        Command::Drive(DriveCommand::Measure(options)) => drive_measure::run(options, app),
        Command::Simulate(SimulateCommand::Torture(options)) => simulate_torture::run(options, app),
        Command::Pool(PoolCommand::List(options)) => pool_list::run(options, app),
        command => {
            let result = app.executor()?.block_on(dispatch::run(command, app));
            match result.as_ref().err().and_then(Failure::taken_at) {
                Some(socket) => app.executor()?.block_on(pass_on::pass_on(socket, app)),
                None => result,
            }
        }
    }
}
