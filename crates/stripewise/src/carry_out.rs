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

use stripewise_control::daemon::caller::{Caller, Left};
use stripewise_control::daemon::socket::{Asked, ControlSocket};
use stripewise_control::daemon::turns::{NoTurn, Turns};
use stripewise_control::request::Request;

use crate::commands::App;
use crate::dispatch;
use crate::failure::{Exit, Result};
use crate::printer::Printer;

/// Takes commands over the socket for as long as it is polled.
pub(crate) async fn take_commands(app: &App, socket: &ControlSocket) -> Result<()> {
    let (of_all, turns) = (app.clone(), socket.turns().clone());
    let carry_out = async move |Asked { command, who, caller }: Asked| {
        let from = From { way: "socket", who: &who, folder: &command.folder };
        let printer = Printer::to_caller(command.json, command.quiet, command.colours, caller.clone());
        carry_out(&command.request, from, printer, &of_all, &caller, &turns).await.code()
    };
    socket.serve(app, carry_out).await
}

/// Where a command comes from.
pub(crate) struct From<'a> {
    /// The way by which it came.
    pub way: &'static str,
    /// Who gave it, for the log.
    pub who: &'a str,
    /// The folder in which it was given.
    pub folder: &'a Path,
}

/// Carries out a request for a caller.
pub(crate) async fn carry_out(
    request: &Request,
    from: From<'_>,
    printer: Printer,
    app: &App,
    caller: &Rc<Caller>,
    turns: &Turns,
) -> Exit {
    let (shown, way, who, begin) = (request.to_string(), from.way, from.who, Instant::now());
    let app = app.for_caller(printer, caller.clone(), from.folder.to_owned());
    let result = in_turn(request, &app, caller, turns).await;
    app.let_others_go_on();
    let exit = result.unwrap_or_else(|failure| {
        if failure.is_silent() {
            tracing::debug!(target: "command", command = shown, way, who, "{}", failure.message);
        }
        app.printer.failure(&failure);
        Exit::of(&failure)
    });
    let (exit_code, seconds) = (exit.code(), begin.elapsed().as_secs_f64());
    match request.only_looks() {
        true => tracing::debug!(target: "command", command = shown, way, who, exit_code, seconds, "done"),
        false => tracing::info!(target: "command", command = shown, way, who, exit_code, seconds, "done"),
    }
    exit
}

/// Carries out a command when it may be.
async fn in_turn(request: &Request, app: &App, caller: &Caller, turns: &Turns) -> Result<Exit> {
    if request.only_looks() {
        let looking = caller.while_there(dispatch::run(request, app)).await;
        return looking.unwrap_or_else(|Left| Err(NoTurn::Left.into()));
    }
    if !request.lasts() {
        app.take_turn(turns.take(caller).await?);
    }
    dispatch::run(request, app).await
}
