//! Files that carry messages: each read takes one, each write gives one. `/dev/fuse` is such a
//! file.
//!
//! This thread reads messages with system calls, several in a row if several wait. Answers go to
//! the kernel with the turn's other requests: many answers are one system call, and their receiver
//! is woken once.
//!
//! Expected faults: none of its own. Errors of the file on an answer are ignored: the process that
//! the answer is for may have ended.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use stripewise_drive::{Buffer, Event};

use crate::ring::message_op::MessageOp;
use crate::ring::piece::Piece;
use crate::ring::{Ring, Watch};

/// A file of messages. It is closed when this and the last message on its way are gone.
pub struct MessageFile {
    ring: Rc<Ring>,
    file: Rc<OwnedFd>,
}

impl MessageFile {
    /// Another descriptor of `file`, which must be one that gives a whole message with each read.
    /// Reads of the file give up where they would wait, from now on, through whichever descriptor.
    pub(crate) fn new(ring: &Rc<Ring>, file: BorrowedFd<'_>) -> io::Result<Self> {
        let file = file.try_clone_to_owned()?;
        // SAFETY: reads and sets flags of a descriptor that is ours; no memory is involved.
        let is_set = unsafe {
            let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
            flags >= 0 && libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) >= 0
        };
        if !is_set {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { ring: ring.clone(), file: Rc::new(file) })
    }

    /// Ends when there may be a message, or the other side has ended. One may wait at a time.
    pub async fn readable(&self) {
        let watch = Rc::new(Watch { ready: Cell::new(false), changed: Event::new() });
        self.ring.watch_readable(self.file.as_raw_fd(), watch.clone());
        watch.changed.wait().await;
    }

    /// The next message, if there is one: its first bytes into `head`, and what is more than that
    /// into `body`. Gives its length, bytes. Files that want room for their longest message refuse
    /// less.
    ///
    /// # Errors
    /// The file's; `Interrupted` where a message was taken back while it was read.
    pub fn try_receive(&self, head: &mut [u8], body: &Buffer) -> io::Result<Option<usize>> {
        let body_memory = body.as_ptr().expect("phantom buffers are for models, not for messages");
        let room = [
            libc::iovec { iov_base: head.as_mut_ptr().cast(), iov_len: head.len() },
            libc::iovec { iov_base: body_memory.as_ptr().cast(), iov_len: body.len() },
        ];
        // SAFETY: both pieces are memory of at least their lengths, which have no other
        // user during the call: `head` is borrowed, and the caller does not share `body` while
        // messages are read into it.
        let length = unsafe { libc::readv(self.file.as_raw_fd(), room.as_ptr(), room.len() as libc::c_int) };
        if length >= 0 {
            return Ok(Some(length as usize));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock => Ok(None),
            _ => Err(error),
        }
    }

    /// Sends a message of these pieces, in one write. A buffer among them must not be changed until
    /// it is sent.
    pub fn send(&self, pieces: Vec<Piece>) {
        if !self.ring.is_closed() {
            self.ring.start_message(MessageOp::new(self.file.clone(), pieces));
        }
    }
}
