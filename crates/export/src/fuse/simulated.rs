//! A mount without a kernel, for virtual time: programs' calls become the messages that Linux would
//! send, in memory. The server behind them is the one of real mounts, message parser included.
//!
//! As in Linux, each call is one request or, beyond the negotiated size, several in a row; an open
//! file is released without waiting for an answer; a request that was sent is executed, whether or
//! not its caller still waits.
//!
//! Expected faults: callers that are dropped while they wait. A server that sends what is no answer
//! is a bug.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use stripewise_drive::{Buffer, Context, Event};
use stripewise_runtime::Piece;

use super::device::{self, Device};
use super::execute::Worker;
use super::files::ROOT;
use super::messages::Messages;
use super::wire::{Agreement, requests};
use super::{Host, MAX_UNDER_WAY_BYTES, Tree};
use crate::pools::PoolExports;

/// A mount that programs of the same executor use. The server ends when this is dropped, after the
/// requests that were sent before.
pub struct SimulatedMount {
    kernel: Rc<Kernel>,
}

/// The kernel's place: requests on their way to the server, and calls that wait for answers.
struct Kernel {
    requests: RefCell<VecDeque<Vec<u8>>>,
    waiting: RefCell<HashMap<u64, Rc<Call>>>,
    last_unique: Cell<u64>,
    max_write_bytes: Cell<u32>,
    is_unmounted: Cell<bool>,
    changed: Event,
}

/// A request whose caller waits.
#[derive(Default)]
struct Call {
    answer: RefCell<Option<io::Result<Vec<u8>>>>,
    answered: Event,
}

impl SimulatedMount {
    /// Serves `exports` to programs of this executor.
    ///
    /// # Errors
    /// The system's, where the server's own user is not known.
    pub fn new(context: &Context, exports: PoolExports, tree: Tree, host: Rc<dyn Host>) -> io::Result<Self> {
        let kernel = Rc::new(Kernel {
            requests: RefCell::default(),
            waiting: RefCell::default(),
            last_unique: Cell::new(0),
            max_write_bytes: Cell::new(0),
            is_unmounted: Cell::new(false),
            changed: Event::new(),
        });
        kernel.max_write_bytes.set(negotiated());
        let device = Device::new(kernel.clone(), MAX_UNDER_WAY_BYTES);
        let worker = Rc::new(Worker::new(exports, tree, host)?);
        let of_task = context.clone();
        drop(context.spawn(async move { worker.serve(&of_task, device, None).await }));
        Ok(Self { kernel })
    }

    /// Opens the file at a path below the mounted folder, to read and write.
    ///
    /// # Errors
    /// The server's error number.
    pub async fn open(&self, path: &str) -> io::Result<Descriptor> {
        let mut folder = ROOT;
        let mut looked_up = Vec::new();
        let found = async {
            for name in path.split('/') {
                let body = self.kernel.ask(|unique| requests::lookup(unique, folder, name)).await?;
                folder = requests::first_number(&body).expect("the node of an entry");
                looked_up.push(folder);
            }
            let body = self.kernel.ask(|unique| requests::open(unique, folder, libc::O_RDWR)).await?;
            Ok(requests::first_number(&body).expect("a handle"))
        }
        .await;
        // The last node is kept as long as the file is open.
        let node = looked_up.pop();
        looked_up.into_iter().for_each(|node| self.kernel.forget(node));
        match (node, found) {
            (Some(node), Ok(handle)) => Ok(Descriptor { kernel: self.kernel.clone(), node, handle }),
            (node, found) => {
                node.into_iter().for_each(|node| self.kernel.forget(node));
                Err(found.err().unwrap_or_else(|| io::Error::from_raw_os_error(libc::ENOENT)))
            }
        }
    }
}

impl Drop for SimulatedMount {
    fn drop(&mut self) {
        self.kernel.is_unmounted.set(true);
        self.kernel.changed.notify_all();
    }
}

/// Maximum length of a read or write, as negotiated with the server.
fn negotiated() -> u32 {
    let Agreement::Reached(answer, _) = device::terms(&requests::init(1), false) else {
        unreachable!("both sides have the same version")
    };
    let body = requests::answer(&answer).map(|(_, _, body)| body);
    body.and_then(requests::max_write_bytes).expect("an answer to INIT")
}

/// An open file of a [`SimulatedMount`]. Released on drop.
pub struct Descriptor {
    kernel: Rc<Kernel>,
    node: u64,
    handle: u64,
}

impl Descriptor {
    /// Reads up to `length` bytes, less at the end of the file.
    ///
    /// # Errors
    /// The server's error number, as of all calls.
    pub async fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let (node, handle) = (self.node, self.handle);
        let mut data = Vec::with_capacity(length);
        while data.len() < length {
            let rest = (length - data.len()).min(self.kernel.max_write_bytes.get() as usize);
            let at = offset + data.len() as u64;
            let read =
                self.kernel.ask(|unique| requests::read(unique, node, handle, at, rest as u32)).await?;
            data.extend_from_slice(&read);
            if read.len() < rest {
                break;
            }
        }
        Ok(data)
    }

    /// Writes; gives the number of bytes written, less at the end of the file. With `durable` it is
    /// a write to a file opened with `O_DSYNC`.
    pub async fn write(&self, offset: u64, data: &[u8], durable: bool) -> io::Result<usize> {
        let (node, handle) = (self.node, self.handle);
        let mut written = 0;
        for piece in data.chunks(self.kernel.max_write_bytes.get() as usize) {
            let at = offset + written as u64;
            let answered =
                self.kernel.ask(|unique| requests::write(unique, node, handle, at, piece, durable)).await?;
            let length = requests::written_bytes(&answered).expect("the number of bytes written") as usize;
            written += length;
            if length < piece.len() {
                break;
            }
        }
        Ok(written)
    }

    /// Punches a hole: the range reads as zeros.
    pub async fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        let (node, handle) = (self.node, self.handle);
        self.done(|unique| requests::punch_hole(unique, node, handle, offset, length)).await
    }

    /// `fsync`.
    pub async fn sync(&self) -> io::Result<()> {
        let (node, handle) = (self.node, self.handle);
        self.done(|unique| requests::fsync(unique, node, handle)).await
    }

    /// `close`, of one of several processes that share the open file.
    pub async fn close_once(&self) -> io::Result<()> {
        let (node, handle) = (self.node, self.handle);
        self.done(|unique| requests::flush(unique, node, handle)).await
    }

    async fn done(&self, request: impl FnOnce(u64) -> Vec<u8>) -> io::Result<()> {
        self.kernel.ask(request).await.map(drop)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let unique = self.kernel.next_unique();
        self.kernel.send_request(requests::release(unique, self.node, self.handle));
        self.kernel.forget(self.node);
    }
}

impl Kernel {
    fn next_unique(&self) -> u64 {
        self.last_unique.set(self.last_unique.get() + 1);
        self.last_unique.get()
    }

    fn send_request(&self, request: Vec<u8>) {
        self.requests.borrow_mut().push_back(request);
        self.changed.notify_all();
    }

    fn forget(&self, node: u64) {
        self.send_request(requests::forget(self.next_unique(), node));
    }

    /// Sends a request and waits for the body of its answer.
    async fn ask(&self, request: impl FnOnce(u64) -> Vec<u8>) -> io::Result<Vec<u8>> {
        if self.is_unmounted.get() {
            return Err(io::Error::from_raw_os_error(libc::ENOTCONN));
        }
        let (unique, call) = (self.next_unique(), Rc::new(Call::default()));
        self.waiting.borrow_mut().insert(unique, call.clone());
        self.send_request(request(unique));
        loop {
            if let Some(answer) = call.answer.take() {
                return answer;
            }
            call.answered.wait().await;
        }
    }
}

impl Messages for Kernel {
    fn try_receive(&self, head: &mut [u8], body: &Buffer) -> io::Result<Option<usize>> {
        let Some(request) = self.requests.borrow_mut().pop_front() else {
            return match self.is_unmounted.get() {
                true => Err(io::Error::from_raw_os_error(libc::ENODEV)),
                false => Ok(None),
            };
        };
        let (first, rest) = request.split_at(request.len().min(head.len()));
        head[..first.len()].copy_from_slice(first);
        body.with_mut(|bytes| bytes[..rest.len()].copy_from_slice(rest));
        Ok(Some(request.len()))
    }

    fn readable(&self) -> LocalBoxFuture<'_, ()> {
        // Taken before the caller waits, so that no request is missed.
        let changed = self.changed.wait();
        Box::pin(async move {
            if self.requests.borrow().is_empty() && !self.is_unmounted.get() {
                changed.await;
            }
        })
    }

    fn send(&self, pieces: Vec<Piece>) {
        let mut message = Vec::with_capacity(pieces.iter().map(Piece::len).sum());
        pieces.iter().for_each(|piece| piece.with(|bytes| message.extend_from_slice(bytes)));
        let (unique, error, body) = requests::answer(&message).expect("an answer");
        let answer = match error {
            0 => Ok(body.to_vec()),
            error => Err(io::Error::from_raw_os_error(error)),
        };
        // A released file has no caller that waits.
        let Some(call) = self.waiting.borrow_mut().remove(&unique) else { return };
        *call.answer.borrow_mut() = Some(answer);
        call.answered.notify_all();
    }
}

#[cfg(test)]
mod tests;
