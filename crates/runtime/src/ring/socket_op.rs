//! An operation of a socket or an eventfd in the ring's table: accept, connect, receive, send, wait
//! for input, or signal. The table keeps its memory until the kernel completes the operation, even
//! if the future is dropped.
//!
//! Expected faults: short transfers (a send continues until all is sent), interrupted operations
//! (repeated a bounded number of times), and futures dropped before completion (a connection
//! accepted for one is closed).

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::task::Waker;

use io_uring::{opcode, squeue, types};
use stripewise_drive::Buffer;

use crate::net::address::Address;
use crate::ring::piece::{MAX_TRANSFER_BYTES, Piece, gather};

/// The number that a signal adds, as an eventfd takes it.
static ONE: [u8; 8] = 1_u64.to_ne_bytes();
/// Maximum repeats of an interrupted operation.
const MAX_REPEATS: u8 = 64;

/// The operation's kind and arguments.
pub(crate) enum SocketWork {
    Accept,
    Connect(Box<Address>),
    /// `all`: wait until the buffer is full, as far as the kernel honours that.
    Receive {
        into: Buffer,
        all: bool,
    },
    /// Waits until there is something to read, or the other side has ended.
    Readable,
    /// Adds one to the count of an eventfd.
    Signal,
    /// Sends from byte `sent_of_next` of piece `sent_pieces` on.
    Send {
        pieces: Vec<Piece>,
        sent_pieces: usize,
        sent_of_next: usize,
    },
}

impl SocketWork {
    /// Number of bytes to be sent.
    pub(crate) fn send_bytes(&self) -> usize {
        match self {
            Self::Send { pieces, .. } => pieces.iter().map(Piece::len).sum(),
            _ => 0,
        }
    }
}

/// A socket operation in the ring's table.
pub(crate) struct SocketOp {
    socket: Rc<OwnedFd>,
    work: SocketWork,
    answer: Rc<Answer>,
    repeats: u8,
}

/// Result slot of an operation, and the task that waits for it.
#[derive(Default)]
pub(crate) struct Answer {
    pub(crate) result: Cell<Option<io::Result<Outcome>>>,
    pub(crate) waker: Cell<Option<Waker>>,
}

/// Result of a successful operation.
pub(crate) enum Outcome {
    Bytes(usize),
    Accepted(OwnedFd),
    Done,
}

/// Progress of an operation after a completion.
pub(crate) enum SocketProgress {
    Done(io::Result<Outcome>),
    Again,
}

impl SocketOp {
    /// Creates an operation and its result slot.
    pub(crate) fn new(socket: Rc<OwnedFd>, work: SocketWork) -> (Self, Rc<Answer>) {
        let answer = Rc::new(Answer::default());
        (Self { socket, work, answer: answer.clone(), repeats: 0 }, answer)
    }

    /// Submission entry of the next step. It points into the operation, `iovecs` and `header`,
    /// which must stay in place until the completion.
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
            SocketWork::Readable => opcode::PollAdd::new(socket, libc::POLLIN as u32).build(),
            SocketWork::Signal => {
                opcode::Write::new(socket, ONE.as_ptr(), ONE.len() as u32).offset(u64::MAX).build()
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

    /// Evaluates a completion: bytes, a descriptor, or a negated error number.
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
            SocketWork::Connect(_) | SocketWork::Readable | SocketWork::Signal => {
                SocketProgress::Done(Ok(Outcome::Done))
            }
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
                    // No progress, or the future was dropped.
                    return SocketProgress::Done(Err(io::ErrorKind::WriteZero.into()));
                }
                self.repeats = 0;
                SocketProgress::Again
            }
        }
    }

    /// Drops the memory, then passes the result to the waiting future.
    pub(crate) fn finish(self, result: io::Result<Outcome>) {
        let Self { socket, work, answer, .. } = self;
        drop((socket, work));
        answer.result.set(Some(result));
        if let Some(waker) = answer.waker.take() {
            waker.wake();
        }
    }

    /// Cancels an operation that was never submitted.
    pub(crate) fn finish_cancelled(self) {
        self.finish(Err(io::Error::from_raw_os_error(libc::ECANCELED)));
    }
}

fn empty_header() -> Box<libc::msghdr> {
    // SAFETY: a msghdr is plain numbers and pointers; all zeros is one without name, pieces and
    // control data.
    Box::new(unsafe { std::mem::zeroed() })
}

/// A send of all pieces, which may take several completions.
pub(crate) fn send_work(pieces: Vec<Piece>) -> SocketWork {
    SocketWork::Send { pieces, sent_pieces: 0, sent_of_next: 0 }
}
