//! Forwards a command to the daemon that has the pool open, and relays its output, messages,
//! progress and input.
//!
//! Expected faults: a daemon that has exited, exits during the command, or has another version;
//! unreadable input; output that is closed early.

use std::io::Read;
use std::path::Path;

use stripewise_control::daemon::socket::frames::{self, Command, Kind, MAX_INPUT_BYTES, Step, VERSION};
use stripewise_control::daemon::socket::{receive, send};
use stripewise_control::request::Request;
use stripewise_runtime::Stream;

use crate::commands::App;
use crate::failure::{Exit, Failure, Result};
use crate::printer::{write_message, write_out};
use crate::progress::Progress;

/// Has the daemon that listens at `socket` execute a request.
pub(crate) async fn pass_on(socket: &Path, request: Request, app: &App) -> Result<Exit> {
    let folder = app.absolute(Path::new(""));
    let command = Command {
        version: VERSION,
        request,
        json: app.printer.is_json(),
        quiet: app.printer.is_quiet(),
        folder,
        colours: app.printer.colours(),
        input_bytes: app.input.length_bytes(),
        lists: app.printer.lists().clone(),
    };
    let command = serde_json::to_vec(&command).map_err(|_| {
        Failure::new(
            "cannot forward the command to the daemon that has the pool open: an argument or the current \
             directory is not valid UTF-8",
        )
        .hint("name the drives by their IDs")
    })?;
    let stream = app.executor()?.network().connect_unix(socket).await;
    let stream = stream.map_err(|error| {
        Failure::because(
            format!("cannot reach the process that has the pool open at {}", socket.display()),
            &error,
        )
        .hint("it may be starting or shutting down: retry")
    })?;
    if command.len() > frames::MAX_BODY_BYTES {
        return Err(Failure::usage("the command line is too long"));
    }
    send(&stream, Kind::Command, &command).await.map_err(broken)?;
    let mut progress = Progress::new(&app.printer);
    loop {
        let (kind, body) = receive(&stream).await.map_err(broken)?;
        match kind {
            Kind::Output => progress.suspended(|| write_out(&body))?,
            Kind::Message => progress.suspended(|| write_message(&body)),
            // A step that cannot be decoded is not shown.
            Kind::Progress => {
                if let Ok(step) = serde_json::from_slice::<Step>(&body) {
                    progress.relay(&step);
                }
            }
            Kind::WantInput => send_input(&stream).await?,
            Kind::Exit => return Ok(Exit::of_code(body.first().copied().unwrap_or(1))),
            Kind::Command | Kind::Input => return Err(broken(std::io::ErrorKind::InvalidData.into())),
        }
    }
}

/// Sends the next bytes of standard input; an empty body marks its end.
async fn send_input(stream: &Stream) -> Result<()> {
    let mut bytes = vec![0; MAX_INPUT_BYTES];
    let read = loop {
        match std::io::stdin().lock().read(&mut bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            other => break other.map_err(|error| Failure::because("cannot read standard input", &error))?,
        }
    };
    send(stream, Kind::Input, &bytes[..read]).await.map_err(broken)
}

fn broken(error: std::io::Error) -> Failure {
    Failure::because("the process that has the pool open exited before the command was complete", &error)
        .hint("`stripewise pool status` shows the state of the pool")
}
