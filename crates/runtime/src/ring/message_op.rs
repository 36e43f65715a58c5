//! A message that is sent, as an operation in the ring's table. Faults expected: none; what the
//! kernel answers is ignored.

use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use io_uring::{opcode, squeue, types};

use crate::ring::piece::{Piece, gather};

/// A message on its way, in the ring's table.
pub(crate) struct MessageOp {
    file: Rc<OwnedFd>,
    pieces: Vec<Piece>,
}

impl MessageOp {
    pub(crate) fn new(file: Rc<OwnedFd>, pieces: Vec<Piece>) -> Self {
        Self { file, pieces }
    }

    /// The write. What it points at is in the message or in `iovecs`, and must stay until the
    /// answer.
    pub(crate) fn entry(&self, iovecs: &mut Vec<libc::iovec>) -> squeue::Entry {
        gather(&self.pieces, 0, iovecs);
        opcode::Writev::new(types::Fd(self.file.as_raw_fd()), iovecs.as_ptr(), iovecs.len() as u32).build()
    }
}
