//! Takes commands over a socket that only its owner and root may connect to, and runs them beside
//! the process's other work.
//!
//! Expected faults: callers that say nothing, send rubbish, do not read, or leave; commands of
//! other versions.

use std::cell::Cell;
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, select};
use stripewise_drive::{Context, Semaphore};
use stripewise_export::ClientId;
use stripewise_runtime::{ListenError, Listener, Piece, Stream};

use super::frames::{Command, Kind, VERSION};
use super::frames_io::receive;
use crate::control::Control;
use crate::daemon::caller::{Caller, Party};
use crate::daemon::refusals::Refusals;
use crate::daemon::turns::Turns;
use crate::failure::{Failure, Result};
use crate::messages::roles::Class;
use crate::notation::json::check_json;
use crate::registry::own_user;

/// Maximum concurrent callers; more wait until one has ended.
const MAX_CALLERS: u64 = 64;
/// A caller sends its command within `MOST_PATIENCE` times this; within one while all places are
/// taken.
const PATIENCE_NS: u64 = 1_000_000_000;
const MOST_PATIENCE: u32 = 10;
/// Time in which a caller must take some of the output.
const SEND_PATIENCE_NS: u64 = 60_000_000_000;

/// Limits of a command, since it is parsed on the executor.
const MAX_VALUES: usize = 1 << 16;
const MAX_DEPTH: usize = 32;

/// Time that another process may keep listening at the address, and the first and longest pauses
/// between attempts: a process that has ended is gone soon, and one that does listen there sees
/// each attempt as a connection.
const LISTEN_PATIENCE_NS: u64 = 3_000_000_000;
const LISTEN_AGAIN_NS: [u64; 2] = [5_000_000, 250_000_000];

/// A command from another process.
pub struct Asked {
    /// The command.
    pub command: Command,
    /// The process, for the log.
    pub who: String,
    /// The destination of its output, and source of its input.
    pub caller: Rc<Caller>,
}

/// The exit code for a command of another version.
const OTHER_VERSION: u8 = 1;

/// The socket that takes commands.
pub struct ControlSocket {
    listener: Listener,
    turns: Rc<Turns>,
    refusals: Rc<Refusals>,
}

impl ControlSocket {
    /// Starts listening. Fails if another daemon of the same state folder does.
    pub async fn open(control: &Control) -> Result<Self> {
        Self::open_at(control, control.registry()?.control_path()?).await
    }

    /// Starts listening for a process that mounts; there may be many of those.
    pub async fn open_for_mount(control: &Control) -> Result<Self> {
        Self::open_at(control, control.registry()?.mount_control_path()?).await
    }

    async fn open_at(control: &Control, path: PathBuf) -> Result<Self> {
        let network = control.executor()?.network();
        let listener =
            listen_patiently(control, || network.listen_unix(&path, stripewise_runtime::OWNER_ONLY)).await?;
        let listener = listener.map_err(|error| match error {
            ListenError::InUse { .. } => {
                Failure::new(format!("a daemon runs already: a process listens on {}", path.display()))
                    .hint("stop that one first, or give this one another state folder with STRIPEWISE_HOME")
            }
            error => Failure::because("cannot take commands", &error)
                .hint("STRIPEWISE_HOME names the folder of the socket; it must be writable"),
        })?;
        control.take_commands_at(path);
        Ok(Self { listener, turns: Rc::default(), refusals: Rc::default() })
    }

    /// The turns of commands that change a pool, from any source.
    pub fn turns(&self) -> &Rc<Turns> {
        &self.turns
    }

    /// Takes commands while it is polled, and runs each with `execute`, which returns the exit
    /// code.
    pub async fn serve(&self, control: &Control, execute: impl AsyncFn(Asked) -> u8 + 'static) -> Result<()> {
        let context = control.executor()?.context();
        let (places, execute) = (Semaphore::new(MAX_CALLERS), Rc::new(execute));
        let is_crowded = Rc::new(Cell::new(false));
        loop {
            is_crowded.set(places.available() == 0);
            let place = places.acquire(1).await;
            let stream = match self.listener.accept().await {
                Ok(stream) => stream,
                // Most likely out of descriptors: some become free.
                Err(_) => {
                    context.sleep_ns(100_000_000).await;
                    continue;
                }
            };
            let user = stream.peer_user();
            if !user.is_some_and(|user| user == 0 || own_user() == Some(user)) {
                self.refusals.tell("commands", &stream.peer(), "it is another user's process");
                continue;
            }
            let (execute, of_task) = (execute.clone(), context.clone());
            let is_crowded = is_crowded.clone();
            drop(context.spawn(async move {
                if let Some(command) = first_word(&stream, &of_task, &is_crowded).await {
                    connection(&stream, &command, &of_task, execute).await;
                }
                drop(place);
            }));
        }
    }
}

/// Listens once no other process does: the kernel keeps the sockets of a killed process a moment
/// longer than the process.
pub async fn listen_patiently<L>(
    control: &Control,
    listen: impl Fn() -> std::result::Result<L, ListenError>,
) -> Result<std::result::Result<L, ListenError>> {
    let context = control.executor()?.context();
    let end_ns = context.now_ns() + LISTEN_PATIENCE_NS;
    let [mut again_ns, longest_ns] = LISTEN_AGAIN_NS;
    loop {
        match listen() {
            Err(ListenError::InUse { .. }) if context.now_ns() < end_ns => {
                context.sleep_ns(again_ns).await;
                again_ns = (2 * again_ns).min(longest_ns);
            }
            other => return Ok(other),
        }
    }
}

/// Receives a caller's command. `None` if it sends none, or something else; it is closed then.
async fn first_word(stream: &Stream, context: &Context, is_crowded: &Cell<bool>) -> Option<Vec<u8>> {
    let mut word = pin!(receive(stream));
    for _ in 0..MOST_PATIENCE {
        match context.time_limit_ns(PATIENCE_NS, &mut word).await {
            Ok(Ok((Kind::Command, body))) => return Some(body),
            Ok(_) => return None,
            // Other callers wait for the place.
            Err(_) if is_crowded.get() => return None,
            Err(_) => {}
        }
    }
    None
}

/// Serves one caller, from its command to the end.
async fn connection(
    stream: &Stream,
    command: &[u8],
    context: &Context,
    execute: Rc<impl AsyncFn(Asked) -> u8 + 'static>,
) {
    let checked = check_json(command, MAX_VALUES, MAX_DEPTH);
    let command = checked.ok().and_then(|()| serde_json::from_slice::<Command>(command).ok());
    let who = format!("uid {} ({})", stream.peer_user().unwrap_or_default(), stream.peer());
    // Each process of the owner is a client.
    let party = Party { client: ClientId::Named(who.clone()), class: Class::Owner };
    let input_bytes = command.as_ref().and_then(|command| command.input_bytes);
    let caller = Rc::new(Caller::new(input_bytes).of(party));
    match command {
        Some(command) if command.version == VERSION => {
            let asked = Asked { command, who, caller: caller.clone() };
            let caller = caller.clone();
            drop(context.spawn(async move {
                let exit_code = execute(asked).await;
                caller.end(exit_code);
            }));
        }
        _ => {
            caller
                .message("error: the daemon has another version than this program\nhint: restart the daemon");
            caller.end(OTHER_VERSION);
        }
    }
    let (incoming, outgoing) =
        (pin!(take_input(stream, &caller)), pin!(send_frames(stream, context, &caller)));
    // Input ends before output if the caller has gone, or broke the protocol.
    if let Either::Left(_) = select(incoming, outgoing).await {
        caller.leave();
    }
}

/// Takes input until the caller leaves or sends something unexpected.
async fn take_input(stream: &Stream, caller: &Caller) {
    while let Ok((Kind::Input, bytes)) = receive(stream).await {
        if caller.take_wanted_input(&bytes).is_err() {
            return;
        }
    }
}

/// Sends output until everything is sent, or the caller leaves or stops reading.
async fn send_frames(stream: &Stream, context: &Context, caller: &Caller) {
    while let Some(bytes) = caller.next_frames().await {
        let sent = context.time_limit_ns(SEND_PATIENCE_NS, pin!(stream.send(vec![Piece::from(bytes)]))).await;
        if !matches!(sent, Ok(Ok(()))) {
            // After an abandoned send the stream is useless.
            stream.shutdown(std::net::Shutdown::Both);
            caller.leave();
        }
    }
}
