//! The remote caller of a command that this process executes: receives the command's output and
//! supplies its input. It stands between the command's task and the tasks of the connection, and
//! never touches the socket.
//!
//! Expected faults: a caller that disconnects at any moment (a change runs to its end, a wait
//! stops), one that does not read its output (bulk output waits for it, other output is short).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::pin::pin;

use futures_util::future::{Either, select};
use stripewise_drive::Event;
use stripewise_export::ClientId;

use super::socket::frames::{self, Kind, MAX_BODY_BYTES, Step};
use crate::messages::roles::Class;

/// Unsent output at which bulk output starts to wait.
const MAX_WAITING_BYTES: usize = 4 << 20;

/// Error: the caller has disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left;

/// Error: input arrived that was not requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotWanted;

/// Everything that a command printed.
#[derive(Debug, Default)]
pub struct Collected {
    /// Standard output.
    pub output: Vec<u8>,
    /// Standard error.
    pub messages: String,
}

/// The client behind a caller. Commands of one client share its limits.
#[derive(Clone, Debug)]
pub struct Party {
    /// The token, user or process.
    pub client: ClientId,
    /// Callers with which it shares a reserve.
    pub class: Class,
}

impl Default for Party {
    /// This process.
    fn default() -> Self {
        Self { client: ClientId::Unknown, class: Class::Owner }
    }
}

/// The remote caller of a command.
#[derive(Default)]
pub struct Caller {
    /// Unsent frames, oldest first.
    outgoing: RefCell<VecDeque<(Kind, Vec<u8>)>>,
    waiting_bytes: Cell<usize>,
    /// Received input that the command has not read yet.
    input: RefCell<VecDeque<u8>>,
    input_ended: Cell<bool>,
    /// True while requested input has not arrived.
    wants_input: Cell<bool>,
    input_bytes: Cell<Option<u64>>,
    left: Cell<bool>,
    done: Cell<bool>,
    party: Party,
    /// Notified after every change of the fields above.
    changed: Event,
}

impl Caller {
    /// Caller whose input has this length, if known.
    pub fn new(input_bytes: Option<u64>) -> Self {
        Self { input_bytes: Cell::new(input_bytes), ..Self::default() }
    }

    /// Caller whose complete input is known.
    pub fn with_input(input: Vec<u8>) -> Self {
        let caller = Self::new(Some(input.len() as u64));
        caller.input.replace(input.into());
        caller.input_ended.set(true);
        caller
    }

    /// The same caller, of this client.
    pub fn of(self, party: Party) -> Self {
        Self { party, ..self }
    }

    /// The client behind it.
    pub(crate) fn party(&self) -> &Party {
        &self.party
    }

    /// Sends a result to standard output. Never waits, as results are short.
    pub fn output(&self, bytes: &[u8]) {
        bytes.chunks(MAX_BODY_BYTES).for_each(|part| self.send(Kind::Output, part));
    }

    /// Sends bulk data to standard output. Waits while too much is unsent.
    pub async fn output_bulk(&self, bytes: &[u8]) -> Result<(), Left> {
        while self.waiting_bytes.get() > MAX_WAITING_BYTES && !self.left.get() {
            self.changed.wait().await;
        }
        if self.left.get() {
            return Err(Left);
        }
        self.output(bytes);
        Ok(())
    }

    /// Sends a line to standard error.
    pub fn message(&self, text: &str) {
        let bytes = text.as_bytes();
        self.send(Kind::Message, &bytes[..bytes.len().min(MAX_BODY_BYTES)]);
    }

    /// Sends the progress of the command.
    pub fn progress(&self, step: &Step) {
        self.send(Kind::Progress, &serde_json::to_vec(step).expect("plain data becomes JSON"));
    }

    /// Reads some of the input; 0 bytes at its end.
    pub async fn read_input(&self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.input.borrow().is_empty() && !self.input_ended.get() {
            self.wants_input.set(true);
            self.send(Kind::WantInput, &[]);
        }
        while self.input.borrow().is_empty() && !self.input_ended.get() {
            if self.left.get() {
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the caller has left"));
            }
            self.changed.wait().await;
        }
        use io::Read;
        self.input.borrow_mut().read(bytes)
    }

    /// Length of the input, if it is a file.
    pub fn input_bytes(&self) -> Option<u64> {
        self.input_bytes.get()
    }

    /// Runs read-only work, and drops it if the caller disconnects first.
    pub async fn while_there<T>(&self, work: impl Future<Output = T>) -> Result<T, Left> {
        match select(pin!(work), pin!(self.until_left())).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right(_) => Err(Left),
        }
    }

    /// Waits until the caller has disconnected.
    pub(crate) async fn until_left(&self) {
        while !self.left.get() {
            self.changed.wait().await;
        }
    }

    /// Sends the exit code as the last frame.
    pub fn end(&self, exit_code: u8) {
        self.send(Kind::Exit, &[exit_code]);
        self.done.set(true);
        self.changed.notify_all();
    }

    /// Waits until input is requested; false if there will be no more requests.
    pub async fn until_input_wanted(&self) -> bool {
        while !self.wants_input.get() && !self.left.get() && !self.done.get() {
            self.changed.wait().await;
        }
        self.wants_input.get()
    }

    /// Stores requested input; no bytes mark its end. Other input is refused, as a caller could
    /// fill the memory with it.
    pub fn take_wanted_input(&self, bytes: &[u8]) -> Result<(), NotWanted> {
        if !self.wants_input.replace(false) {
            return Err(NotWanted);
        }
        self.take_input(bytes);
        Ok(())
    }

    /// Stores input; no bytes mark its end.
    fn take_input(&self, bytes: &[u8]) {
        self.input.borrow_mut().extend(bytes);
        self.input_ended.set(self.input_ended.get() || bytes.is_empty());
        self.changed.notify_all();
    }

    /// Records that the caller has disconnected.
    pub fn leave(&self) {
        self.left.set(true);
        self.outgoing.borrow_mut().clear();
        self.waiting_bytes.set(0);
        self.changed.notify_all();
    }

    /// The next frames to send, concatenated; `None` after the last.
    pub(crate) async fn next_frames(&self) -> Option<Vec<u8>> {
        loop {
            if self.left.get() {
                return None;
            }
            let mut bytes = Vec::new();
            while bytes.len() < MAX_BODY_BYTES
                && let Some(frame) = { self.outgoing.borrow_mut().pop_front() }
            {
                self.waiting_bytes.set(self.waiting_bytes.get() - frame.1.len());
                bytes.extend(frames::encode(frame.0, &frame.1));
            }
            if !bytes.is_empty() {
                self.changed.notify_all();
                return Some(bytes);
            }
            if self.done.get() {
                return None;
            }
            self.changed.wait().await;
        }
    }

    /// Collects everything that the command prints.
    pub async fn collect(&self) -> Collected {
        let mut output = Vec::new();
        let messages = self.relay(async |bytes| output.extend(bytes)).await;
        Collected { output, messages }
    }

    /// Passes on what the command prints to standard output; returns its messages.
    pub async fn relay(&self, mut output: impl AsyncFnMut(Vec<u8>)) -> String {
        let mut messages = String::new();
        loop {
            while let Some((kind, body)) = { self.outgoing.borrow_mut().pop_front() } {
                self.waiting_bytes.set(self.waiting_bytes.get() - body.len());
                match kind {
                    Kind::Output => output(body).await,
                    Kind::Message => {
                        messages.push_str(&String::from_utf8_lossy(&body));
                        messages.push('\n');
                    }
                    _ => {}
                }
                self.changed.notify_all();
            }
            if self.done.get() {
                return messages;
            }
            self.changed.wait().await;
        }
    }

    fn send(&self, kind: Kind, body: &[u8]) {
        if self.left.get() {
            return;
        }
        self.waiting_bytes.set(self.waiting_bytes.get() + body.len());
        self.outgoing.borrow_mut().push_back((kind, body.to_vec()));
        self.changed.notify_all();
    }
}
