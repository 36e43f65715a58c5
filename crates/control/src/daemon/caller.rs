//! The caller that had a command carried out in this process: takes what it prints, gives it its
//! input. Between the command's task and the tasks of its connection; nothing here touches the
//! socket.
//!
//! Expected faults: a caller that leaves at any moment (the command is not torn off in the middle
//! of a change; what waits ends), one that does not read what it asked for (bulk output waits for
//! it, and the rest is short).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::pin::pin;

use futures_util::future::{Either, select};
use stripewise_drive::Event;

use super::socket::frames::{self, Kind, MAX_BODY_BYTES, Step};

/// Output that may wait for a caller to take it before more is held back.
const MAX_WAITING_BYTES: usize = 4 << 20;

/// The caller has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left;

/// Input came that was not asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotWanted;

/// What a command printed.
#[derive(Debug, Default)]
pub struct Collected {
    /// On standard output.
    pub output: Vec<u8>,
    /// On standard error.
    pub messages: String,
}

/// The caller that had a command carried out here.
#[derive(Default)]
pub struct Caller {
    /// Frames on their way out, oldest first.
    outgoing: RefCell<VecDeque<(Kind, Vec<u8>)>>,
    waiting_bytes: Cell<usize>,
    /// Input that came and was not read yet.
    input: RefCell<VecDeque<u8>>,
    input_ended: Cell<bool>,
    /// Input was asked for and has not come yet.
    wants_input: Cell<bool>,
    input_bytes: Cell<Option<u64>>,
    left: Cell<bool>,
    done: Cell<bool>,
    /// Rings whenever anything of the above changes.
    changed: Event,
}

impl Caller {
    /// With this much input, where that is known.
    pub fn new(input_bytes: Option<u64>) -> Self {
        Self { input_bytes: Cell::new(input_bytes), ..Self::default() }
    }

    /// With all of its input.
    pub fn with_input(input: Vec<u8>) -> Self {
        let caller = Self::new(Some(input.len() as u64));
        caller.input.replace(input.into());
        caller.input_ended.set(true);
        caller
    }

    /// For standard output. A result is short: it never waits.
    pub fn output(&self, bytes: &[u8]) {
        bytes.chunks(MAX_BODY_BYTES).for_each(|part| self.send(Kind::Output, part));
    }

    /// For standard output, as much as there is: waits while the caller does not take it.
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

    /// A line for standard error.
    pub fn message(&self, text: &str) {
        let bytes = text.as_bytes();
        self.send(Kind::Message, &bytes[..bytes.len().min(MAX_BODY_BYTES)]);
    }

    /// How the work stands.
    pub fn progress(&self, step: &Step) {
        self.send(Kind::Progress, &serde_json::to_vec(step).expect("plain data becomes JSON"));
    }

    /// Some of the input, 0 bytes at its end.
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

    /// Length of the input where it is a file.
    pub fn input_bytes(&self) -> Option<u64> {
        self.input_bytes.get()
    }

    /// Does something that changes nothing, unless the caller leaves before it is done: then it
    /// ends half-way.
    pub async fn while_there<T>(&self, work: impl Future<Output = T>) -> Result<T, Left> {
        match select(pin!(work), pin!(self.until_left())).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right(_) => Err(Left),
        }
    }

    /// Ends when the caller has left.
    pub(crate) async fn until_left(&self) {
        while !self.left.get() {
            self.changed.wait().await;
        }
    }

    /// The command has ended; nothing is sent after its exit code.
    pub fn end(&self, exit_code: u8) {
        self.send(Kind::Exit, &[exit_code]);
        self.done.set(true);
        self.changed.notify_all();
    }

    /// Input came that was asked for. Nothing else is kept: a caller could fill all memory with it.
    pub(crate) fn take_wanted_input(&self, bytes: &[u8]) -> Result<(), NotWanted> {
        if !self.wants_input.replace(false) {
            return Err(NotWanted);
        }
        self.take_input(bytes);
        Ok(())
    }

    /// Input; none: it has ended.
    fn take_input(&self, bytes: &[u8]) {
        self.input.borrow_mut().extend(bytes);
        self.input_ended.set(self.input_ended.get() || bytes.is_empty());
        self.changed.notify_all();
    }

    /// The caller is gone.
    pub fn leave(&self) {
        self.left.set(true);
        self.outgoing.borrow_mut().clear();
        self.waiting_bytes.set(0);
        self.changed.notify_all();
    }

    /// The next frames to send, one behind the other; `None` when the last was taken.
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

    /// All that the command prints, until its end.
    pub async fn collect(&self) -> Collected {
        let mut collected = Collected::default();
        loop {
            while let Some((kind, body)) = { self.outgoing.borrow_mut().pop_front() } {
                self.waiting_bytes.set(self.waiting_bytes.get() - body.len());
                match kind {
                    Kind::Output => collected.output.extend(body),
                    Kind::Message => {
                        collected.messages.push_str(&String::from_utf8_lossy(&body));
                        collected.messages.push('\n');
                    }
                    _ => {}
                }
                self.changed.notify_all();
            }
            if self.done.get() {
                return collected;
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
