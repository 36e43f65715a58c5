//! Carries out commands of other processes, beside everything else that this process does: those
//! that came over the control socket, and those that HTTP made.
//!
//! Commands that change a pool take turns. One that waits for the job that it began lets others go
//! on meanwhile (`Control::let_others_go_on`); those that only look, wait or move a volume's bytes
//! take none. A caller that leaves before its turn is forgotten. A change that has begun goes on
//! when its caller leaves: it is not torn off half-way. What only looks or waits ends.
//!
//! Expected faults: callers that leave; commands that make no sense here.

use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use clap::Parser;
use stripewise_control::daemon::caller::{Caller, Left};
use stripewise_control::daemon::socket::frames::Colours;
use stripewise_control::daemon::socket::{Asked, ControlSocket};
use stripewise_control::daemon::turns::{NoTurn, Turns};

use crate::cli::{Cli, Command};
use crate::commands::App;
use crate::dispatch;
use crate::failure::{Exit, Result};
use crate::printer::{Printer, usage_document};

/// Takes commands over the socket for as long as it is polled.
pub async fn take_commands(app: &App, socket: &ControlSocket) -> Result<()> {
    let (of_all, turns) = (app.clone(), socket.turns().clone());
    let carry_out = async move |Asked { command, who, caller }: Asked| {
        let from = From { way: "socket", who: &who, folder: command.folder.as_ref() };
        carry_out(&command.words, from, command.colours, &of_all, &caller, &turns).await.code()
    };
    socket.serve(app, carry_out).await
}

/// Where a command comes from.
pub struct From<'a> {
    /// The way by which it came.
    pub way: &'static str,
    /// Who gave it, for the log.
    pub who: &'a str,
    /// The folder in which it was given.
    pub folder: &'a Path,
}

/// Carries out a command line for a caller.
pub async fn carry_out(
    words: &[String],
    from: From<'_>,
    colours: Colours,
    app: &App,
    caller: &Rc<Caller>,
    turns: &Turns,
) -> Exit {
    let (shown, way, who, begin) = (words.join(" "), from.way, from.who, Instant::now());
    let words = std::iter::once("stripewise").chain(words.iter().map(String::as_str));
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => {
            if shown.split(' ').any(|word| word == "--json") {
                caller.output(usage_document(&error).as_bytes());
            }
            caller.message(error.to_string().trim_end());
            return Exit::Usage;
        }
    };
    let printer = Printer::to_caller(cli.json, cli.quiet, colours, caller.clone());
    let app = app.for_caller(printer, caller.clone(), from.folder.to_owned());
    let result = in_turn(&cli.command, &app, caller, turns).await;
    app.let_others_go_on();
    let exit = result.unwrap_or_else(|failure| {
        if failure.is_silent() {
            tracing::debug!(target: "command", command = shown, way, who, "{}", failure.message);
        }
        app.printer.failure(&failure);
        Exit::of(&failure)
    });
    let (exit_code, seconds) = (exit.code(), begin.elapsed().as_secs_f64());
    match cli.command.only_looks() {
        true => tracing::debug!(target: "command", command = shown, way, who, exit_code, seconds, "done"),
        false => tracing::info!(target: "command", command = shown, way, who, exit_code, seconds, "done"),
    }
    exit
}

/// Carries out a command when it may be.
async fn in_turn(command: &Command, app: &App, caller: &Caller, turns: &Turns) -> Result<Exit> {
    if command.only_looks() {
        let looking = caller.while_there(dispatch::run(command, app)).await;
        return looking.unwrap_or_else(|Left| Err(NoTurn::Left.into()));
    }
    if !command.lasts() {
        app.take_turn(turns.take(caller).await?);
    }
    dispatch::run(command, app).await
}
