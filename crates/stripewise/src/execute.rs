//! Runs requests of other processes, beside the process's other work: from the control socket, and
//! from HTTP.
//!
//! Commands that change the same pool take turns. One that waits for its job lets others proceed
//! (`Control::let_others_go_on`); those that only read, wait or transfer a volume's data take no
//! turn. A caller that leaves before its turn is dropped. A change that has begun is finished even
//! if its caller leaves; a request that only reads or waits ends.
//!
//! Expected faults: callers that leave; invalid commands.

use std::time::Instant;

use stripewise_control::daemon::caller::{Caller, Left};
use stripewise_control::daemon::socket::{Asked, ControlSocket};
use stripewise_control::daemon::turns::{NoTurn, Turns};
use stripewise_control::plain::cut;
use stripewise_control::request::Request;
use stripewise_control::response::Response;
use stripewise_control::roles::Role;

use crate::answer;
use crate::commands::App;
use crate::dispatch;
use crate::failure::Result;
use crate::printer::Printer;

/// Maximum length of a command in the log, bytes.
const MOST_SHOWN_BYTES: usize = 1000;

/// Takes commands over the socket while it is polled.
pub(crate) async fn take_commands(app: &App, socket: &ControlSocket) -> Result<()> {
    let (of_all, turns) = (app.clone(), socket.turns().clone());
    let execute = async move |Asked { command, who, caller }: Asked| {
        let printer = Printer::to_caller(command.json, command.quiet, command.colours, caller.clone());
        // The socket accepts its owner and root alone.
        let app = of_all.for_caller(printer, caller.clone(), command.folder, Role::Admin);
        let from = From { way: "socket", who: &who };
        answer::report(execute(&command.request, from, &app, &caller, &turns).await, &app).code()
    };
    socket.serve(app, execute).await
}

/// The origin of a request.
pub(crate) struct From<'a> {
    /// The channel by which it came.
    pub way: &'static str,
    /// The caller, for the log.
    pub who: &'a str,
}

/// Runs a request for its caller; `app` is the caller's.
pub(crate) async fn execute(
    request: &Request,
    from: From<'_>,
    app: &App,
    caller: &Caller,
    turns: &Turns,
) -> Result<Response> {
    let shown = cut(&request.to_string(), MOST_SHOWN_BYTES);
    let (way, who, begin) = (from.way, from.who, Instant::now());
    let result = in_turn(request, app, caller, turns).await;
    app.let_others_go_on();
    if let Some(failure) = result.as_ref().err().filter(|failure| failure.is_silent()) {
        tracing::debug!(target: "command", command = shown, way, who, "{}", failure.message);
    }
    let (exit_code, seconds) = (answer::exit_of(&result).code(), begin.elapsed().as_secs_f64());
    match request.only_looks() {
        true => tracing::debug!(target: "command", command = shown, way, who, exit_code, seconds, "done"),
        false => tracing::info!(target: "command", command = shown, way, who, exit_code, seconds, "done"),
    }
    result
}

/// Runs a request, in its turn if it needs one.
async fn in_turn(request: &Request, app: &App, caller: &Caller, turns: &Turns) -> Result<Response> {
    if request.only_looks() {
        let looking = caller.while_there(dispatch::run(request, app)).await;
        return looking.unwrap_or_else(|Left| Err(NoTurn::Left.into()));
    }
    if !request.lasts() {
        app.take_turn(turns.take(caller, &request.changes()).await?);
    }
    dispatch::run(request, app).await
}
