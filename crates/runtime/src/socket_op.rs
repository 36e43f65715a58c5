//! One operation of a socket in the ring's table: accept, connect, receive, send. Its memory stays
//! there until the kernel has answered, even if the future that asked is dropped.
//!
//! Expected faults: transfers cut short (a send is continued until all of it is sent), interrupted
//! operations (repeated a bounded number of times), and futures dropped before the answer comes (a
//! connection accepted for one is closed).

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};

use io_uring::{opcode, squeue, types};
use stripewise_drive::Buffer;

use crate::net::address::Address;
use crate::ring::Ring;

/// The kernel's own limit on the pieces of one transfer (UIO_MAXIOV).
const MAX_PIECES: usize = 1024;
/// No single transfer is longer; the kernel's own limit is 2 GiB less a page.
const MAX_TRANSFER_BYTES: usize = 1 << 30;
/// How often an interrupted operation is repeated.
const MAX_REPEATS: u8 = 64;
/// A send from this length on goes to the kernel at once instead of with the turn's other requests:
/// the peer takes it while this thread goes on. (1 MiB sequential reads of an NBD export in memory
/// reached 0.91 of nbdkit's rate without, 1.06 with it.)
const PROMPT_SEND_BYTES: usize = 64 << 10;
/// Bytes that a piece can carry without memory of its own.
const SMALL_BYTES: usize = 48;

/// Bytes to be sent.
pub struct Piece(Bytes);

enum Bytes {
    Small { bytes: [u8; SMALL_BYTES], length: u8 },
    Vec(Vec<u8>),
    Buffer(Buffer),
}

impl Piece {
    /// A copy of `bytes`; without an allocation up to 48 bytes, as heads of messages are.
    pub fn copy_of(bytes: &[u8]) -> Self {
        if bytes.len() > SMALL_BYTES {
            return Self(Bytes::Vec(bytes.to_vec()));
        }
        let mut small = [0; SMALL_BYTES];
        small[..bytes.len()].copy_from_slice(bytes);
        Self(Bytes::Small { bytes: small, length: bytes.len() as u8 })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        match &self.0 {
            Bytes::Small { length, .. } => usize::from(*length),
            Bytes::Vec(bytes) => bytes.len(),
            Bytes::Buffer(buffer) => buffer.len(),
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `f` with the bytes, to send them in another form.
    pub fn with<T>(&self, f: impl FnOnce(&[u8]) -> T) -> T {
        match &self.0 {
            Bytes::Small { bytes, length } => f(&bytes[..usize::from(*length)]),
            Bytes::Vec(bytes) => f(bytes),
            Bytes::Buffer(buffer) => {
                buffer.with(f).expect("phantom buffers are for models, not for networks")
            }
        }
    }

    fn address(&self) -> *const u8 {
        match &self.0 {
            Bytes::Small { bytes, .. } => bytes.as_ptr(),
            Bytes::Vec(bytes) => bytes.as_ptr(),
            Bytes::Buffer(buffer) => {
                buffer.as_ptr().expect("phantom buffers are for models, not for networks").as_ptr()
            }
        }
    }
}

impl From<Vec<u8>> for Piece {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Bytes::Vec(bytes))
    }
}

impl From<Buffer> for Piece {
    /// The buffer must not be changed until it is sent.
    fn from(buffer: Buffer) -> Self {
        Self(Bytes::Buffer(buffer))
    }
}

/// What is to be done.
pub(crate) enum SocketWork {
    Accept,
    Connect(Box<Address>),
    /// `all`: as a rule not fewer bytes than there is room for.
    Receive {
        into: Buffer,
        all: bool,
    },
    /// From byte `sent_of_next` of piece `sent_pieces` on.
    Send {
        pieces: Vec<Piece>,
        sent_pieces: usize,
        sent_of_next: usize,
    },
}

impl SocketWork {
    fn send_bytes(&self) -> usize {
        match self {
            Self::Send { pieces, .. } => pieces.iter().map(Piece::len).sum(),
            _ => 0,
        }
    }
}

/// A socket's operation in the ring's table.
pub(crate) struct SocketOp {
    socket: Rc<OwnedFd>,
    work: SocketWork,
    answer: Rc<Answer>,
    repeats: u8,
}

#[derive(Default)]
struct Answer {
    result: Cell<Option<io::Result<Outcome>>>,
    waker: Cell<Option<Waker>>,
}

/// What an operation came to.
pub(crate) enum Outcome {
    Bytes(usize),
    Accepted(OwnedFd),
    Done,
}

/// What an answer of the kernel means for its operation.
pub(crate) enum SocketProgress {
    Done(io::Result<Outcome>),
    Again,
}

impl SocketOp {
    fn new(socket: Rc<OwnedFd>, work: SocketWork) -> (Self, Rc<Answer>) {
        let answer = Rc::new(Answer::default());
        (Self { socket, work, answer: answer.clone(), repeats: 0 }, answer)
    }

    /// The next step. What it points at is in the operation, in `iovecs` or `header`, and must stay
    /// until the answer.
    pub(crate) fn entry(
        &mut self,
        iovecs: &mut Vec<libc::iovec>,
        header: &mut Option<Box<libc::msghdr>>,
    ) -> squeue::Entry {
        let socket = types::Fd(self.socket.as_raw_fd());
        match &self.work {
            SocketWork::Accept => opcode::Accept::new(socket, std::ptr::null_mut(), std::ptr::null_mut())
                .flags(libc::SOCK_CLOEXEC)
                .build(),
            SocketWork::Connect(address) => {
                opcode::Connect::new(socket, address.as_ptr(), address.length()).build()
            }
            SocketWork::Receive { into, all } => {
                let memory = into.as_ptr().expect("phantom buffers are for models, not for networks");
                let length = into.len().min(MAX_TRANSFER_BYTES) as u32;
                let flags = if *all { libc::MSG_WAITALL } else { 0 };
                opcode::Recv::new(socket, memory.as_ptr(), length).flags(flags).build()
            }
            SocketWork::Send { pieces, sent_pieces, sent_of_next } => {
                gather(&pieces[*sent_pieces..], *sent_of_next, iovecs);
                let header = header.get_or_insert_with(empty_header);
                header.msg_iov = iovecs.as_mut_ptr();
                header.msg_iovlen = iovecs.len() as _;
                let flags = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32;
                opcode::SendMsg::new(socket, &raw const **header).flags(flags).build()
            }
        }
    }

    /// What `answer` (bytes or a descriptor, or an error number negated) means.
    pub(crate) fn advance(&mut self, answer: i32) -> SocketProgress {
        if answer < 0 {
            let is_wanted = Rc::strong_count(&self.answer) > 1;
            if is_wanted && matches!(-answer, libc::EINTR | libc::EAGAIN) && self.repeats < MAX_REPEATS {
                self.repeats += 1;
                return SocketProgress::Again;
            }
            return SocketProgress::Done(Err(io::Error::from_raw_os_error(-answer)));
        }
        match &mut self.work {
            SocketWork::Connect(_) => SocketProgress::Done(Ok(Outcome::Done)),
            SocketWork::Receive { .. } => SocketProgress::Done(Ok(Outcome::Bytes(answer as usize))),
            SocketWork::Accept => {
                // SAFETY: the kernel made this descriptor for the operation; it has no other owner.
                let accepted = unsafe { OwnedFd::from_raw_fd(answer) };
                SocketProgress::Done(Ok(Outcome::Accepted(accepted)))
            }
            SocketWork::Send { pieces, sent_pieces, sent_of_next } => {
                let mut sent = answer as usize + *sent_of_next;
                while let Some(piece) = pieces.get(*sent_pieces).filter(|piece| piece.len() <= sent) {
                    sent -= piece.len();
                    *sent_pieces += 1;
                }
                *sent_of_next = sent;
                if *sent_pieces == pieces.len() {
                    return SocketProgress::Done(Ok(Outcome::Done));
                }
                if answer == 0 || Rc::strong_count(&self.answer) == 1 {
                    // Nothing is sent any more, or the future was dropped.
                    return SocketProgress::Done(Err(io::ErrorKind::WriteZero.into()));
                }
                self.repeats = 0;
                SocketProgress::Again
            }
        }
    }

    /// Gives the answer to the waiting future, after dropping the memory.
    pub(crate) fn finish(self, result: io::Result<Outcome>) {
        let Self { socket, work, answer, .. } = self;
        drop((socket, work));
        answer.result.set(Some(result));
        if let Some(waker) = answer.waker.take() {
            waker.wake();
        }
    }

    /// Ends an operation that the kernel has never seen.
    pub(crate) fn finish_cancelled(self) {
        self.finish(Err(io::Error::from_raw_os_error(libc::ECANCELED)));
    }
}

fn empty_header() -> Box<libc::msghdr> {
    // SAFETY: a msghdr is plain numbers and pointers; all zeros is one without name, pieces and
    // control data.
    Box::new(unsafe { std::mem::zeroed() })
}

/// The memory of `pieces` from `skip_bytes` of the first on, no more than one operation takes.
pub(crate) fn gather(pieces: &[Piece], mut skip_bytes: usize, iovecs: &mut Vec<libc::iovec>) {
    iovecs.clear();
    let mut total_bytes = 0;
    for piece in pieces {
        let length = (piece.len() - skip_bytes).min(MAX_TRANSFER_BYTES - total_bytes);
        let start = piece.address().wrapping_add(skip_bytes);
        skip_bytes = 0;
        if iovecs.len() == MAX_PIECES || total_bytes == MAX_TRANSFER_BYTES {
            break;
        }
        if length > 0 {
            iovecs.push(libc::iovec { iov_base: start.cast_mut().cast(), iov_len: length });
            total_bytes += length;
        }
    }
}

/// Future of an operation in the table. Dropping it cancels the operation; its memory stays until
/// the kernel lets go.
pub(crate) struct Operation {
    ring: Rc<Ring>,
    index: u32,
    answer: Rc<Answer>,
    ended: bool,
}

impl Operation {
    /// Queues the operation; fails at once where the executor is gone.
    pub(crate) fn start(ring: &Rc<Ring>, socket: &Rc<OwnedFd>, work: SocketWork) -> io::Result<Self> {
        if ring.is_closed() {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "the executor of this socket has ended"));
        }
        let is_prompt = work.send_bytes() >= PROMPT_SEND_BYTES;
        let (op, answer) = SocketOp::new(socket.clone(), work);
        let index = ring.start_socket(op);
        if is_prompt {
            ring.submit();
            ring.collect();
        }
        Ok(Self { ring: ring.clone(), index, answer, ended: false })
    }
}

impl Future for Operation {
    type Output = io::Result<Outcome>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.answer.result.take() {
            self.ended = true;
            return Poll::Ready(result);
        }
        self.answer.waker.set(Some(context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // An answer that is there has left the table, and its number may be another operation's by
        // now.
        if !self.ended && self.answer.result.take().is_none() {
            self.answer.waker.take();
            self.ring.cancel_socket(self.index);
        }
    }
}

/// The pieces of one send, to gather several answers.
pub(crate) fn send_work(pieces: Vec<Piece>) -> SocketWork {
    SocketWork::Send { pieces, sent_pieces: 0, sent_of_next: 0 }
}
