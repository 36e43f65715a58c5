//! The command line of Stripewise: one file per command, one printer, one error style.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod answer;
mod cli;
mod commands;
mod dispatch;
mod execute;
mod failure;
mod http;
mod input;
mod log;
mod log_lines;
mod notices;
mod pass_on;
mod printer;
mod progress;
mod report;

use std::process::ExitCode;

use clap::Parser;
use stripewise_control::daemon::socket::frames::ListForm;
use stripewise_control::operations;

use crate::cli::{Cli, Command, DriveCommand, PoolCommand, SimulateCommand};
use crate::commands::*;
use crate::failure::{Exit, Failure, Result};

fn main() -> ExitCode {
    completions::answer_shell();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return wrong_usage(&error),
    };
    let form = cli.command.list_form();
    let lists = form.as_ref().map_or_else(|_| ListForm::default(), Clone::clone);
    let app = App::of_this_process(printer::Printer::new(cli.json, cli.quiet).with_lists(lists));
    let exit = form.and_then(|_| run(&cli.command, &app)).unwrap_or_else(|failure| {
        app.printer.failure(&failure);
        Exit::of(&failure)
    });
    log_lines::flush();
    ExitCode::from(exit.code())
}

/// Reports a usage error, or prints help. With `--json`, a usage error is also a JSON document.
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
        // These commands use no pool, or temporary pools.
        Command::Evaluate(options) => evaluate::run(options, app),
        Command::Lab(command) => lab::run(command, app),
        Command::Model(command) => model::run(command, app),
        Command::Advise(options) => advise::run(options, app),
        Command::Completions(options) => completions::run(options, app),
        Command::Man(options) => man::run(options, app),
        Command::Drive(DriveCommand::Make(options)) => drive::make::run(options, app),
        Command::Drive(DriveCommand::Measure(options)) => drive::measure::run(options, app),
        Command::Simulate(SimulateCommand::Torture(options)) => simulate_torture::run(options, app),
        // These commands keep pools open themselves, or compute for seconds: a daemon cannot run
        // them for a client.
        Command::Pool(PoolCommand::Advise(options)) => {
            let why = "a daemon cannot run predictions: it would serve no clients for seconds";
            let hint = "run the command on the daemon's host, with its state directory";
            alone(pool::advise::run(options, app), app, || Failure::new(why).hint(hint))
        }
        Command::Serve(options) => {
            alone(serve::run(options, app), app, || Failure::new("this process already serves pools"))
        }
        Command::Mount(options) => {
            let result = app.executor()?.block_on(mount::run(options, app));
            match result.as_ref().err().and_then(Failure::taken_at) {
                Some(socket) => {
                    app.executor()?.block_on(pass_on::pass_on(socket, options.request().into(), app))
                }
                None => result,
            }
        }
        // Reads the registry only: no executor.
        Command::Pool(PoolCommand::List(options)) => {
            answer::print(&operations::pools::list::run(&options.request(), app)?, app)
        }
        Command::Pool(_)
        | Command::Volume(_)
        | Command::Snapshot(_)
        | Command::Alert(_)
        | Command::Umount(_)
        | Command::Drive(
            DriveCommand::List(_) | DriveCommand::Show(_) | DriveCommand::Locate(_) | DriveCommand::Clear(_),
        ) => {
            let request = command.request()?.expect("what concerns pools is a request");
            let result = app.executor()?.block_on(dispatch::run(&request, app));
            match result.as_ref().err().and_then(Failure::taken_at) {
                Some(socket) => app.executor()?.block_on(pass_on::pass_on(socket, request, app)),
                None => answer::print(&result?, app),
            }
        }
    }
}

/// Runs a command that a daemon cannot run for a client; fails with `taken` if a daemon has the
/// pool.
fn alone(
    work: impl Future<Output = Result<Exit>>,
    app: &App,
    taken: impl FnOnce() -> Failure,
) -> Result<Exit> {
    let result = app.executor()?.block_on(work);
    match result.as_ref().err().and_then(Failure::taken_at) {
        Some(_) => Err(taken()),
        None => result,
    }
}
