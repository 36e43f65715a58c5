//! The device of a mount: receives the kernel's requests and sends the answers, over the carrier of
//! `messages.rs`.
//!
//! Requests are read on the executor's own thread, since another thread would have to wake it for
//! every request. Only the first message, which negotiates version and sizes, is read with a
//! blocking call.
//!
//! Expected faults: a kernel with another protocol version; a mount that ends at any moment, with
//! requests in flight; requests that are interrupted while they are read; answers that no process
//! waits for any more.

use std::any::Any;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::rc::Rc;

use stripewise_drive::{Buffer, BufferPool, Semaphore, SemaphorePermit, yield_now};
use stripewise_runtime::{FuseMountPoint, Piece};

use super::messages::Messages;
use super::wire::{self, Agreement, Errno, Question, Transfer, WRITE_HEAD_BYTES};

/// Maximum length of a read or write.
pub(super) const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Maximum concurrent asynchronous requests (of loop devices and io_uring) from the kernel.
const MAX_BACKGROUND: u16 = 512;
/// Minimum memory charged for a request, which also bounds the number of requests without data.
const LEAST_COUNTED_BYTES: u64 = 16 << 10;
/// Data of at least this length stay in the buffer they were read into. Shorter data are copied
/// out, so that they do not hold a large buffer.
const KEPT_BYTES: usize = MAX_REQUEST_BYTES / 2;
/// Maximum buffer memory kept for reuse.
pub(super) const RETAINED_BYTES: usize = 16 << 20;
/// Maximum requests received in a row before other tasks run.
const MAX_IN_A_ROW: usize = 32;

/// Buffer size for the first message; the kernel requires this much for any read.
const FIRST_MESSAGE_BYTES: usize = 8192;

/// Negotiates version, sizes and capabilities with the kernel. Blocks until its INIT request comes,
/// which it sends when it mounts. True if its requests come over io_uring from now on, which they
/// may if `has_ring`.
pub(super) fn agree(mount_point: &FuseMountPoint, has_ring: bool) -> io::Result<bool> {
    let mut device = File::from(mount_point.as_fd().try_clone_to_owned()?);
    let mut message = [0; FIRST_MESSAGE_BYTES];
    loop {
        let length = match device.read(&mut message) {
            Ok(length) => length,
            // The request was interrupted, or a signal arrived.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => continue,
            Err(error) => return Err(error),
        };
        match terms(&message[..length], has_ring) {
            Agreement::Reached(answer, over_ring) => return device.write_all(&answer).map(|()| over_ring),
            Agreement::AskAgain(answer) => device.write_all(&answer)?,
            Agreement::Impossible(answer) => {
                device.write_all(&answer)?;
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "the kernel's version of the FUSE protocol is not supported",
                ));
            }
        }
    }
}

/// Answers an INIT request.
pub(super) fn terms(message: &[u8], has_ring: bool) -> Agreement {
    wire::agree(message, MAX_REQUEST_BYTES as u32, MAX_BACKGROUND, has_ring)
}

/// A received request.
pub(super) struct Asked {
    pub(super) question: Question,
    /// Data of a write.
    pub(super) data: Option<Buffer>,
    pub(super) answer: Answer,
    pub(super) held: Held,
}

/// Share of a limit on data in flight, released on drop.
pub(super) enum Held {
    /// That of this device.
    Here { _permit: SemaphorePermit },
    /// That of a device on another thread.
    Elsewhere { _answered: Box<dyn Any> },
}

/// Source of the kernel's requests.
pub(super) struct Device {
    messages: Rc<dyn Messages>,
    buffers: BufferPool,
    /// Buffer for the data of the next request.
    next_data: Buffer,
    room: Semaphore,
    taken_in_a_row: usize,
}

impl Device {
    /// Device over this carrier, with at most `in_flight_bytes` of requests in flight.
    pub(super) fn new(messages: Rc<dyn Messages>, in_flight_bytes: u64) -> Self {
        let buffers = BufferPool::new(RETAINED_BYTES);
        Self {
            messages,
            next_data: buffers.allocate(MAX_REQUEST_BYTES),
            buffers,
            room: Semaphore::new(in_flight_bytes),
            taken_in_a_row: 0,
        }
    }

    /// The next request, once the limit admits it; `None` after the unmount.
    pub(super) async fn next(&mut self) -> Option<Asked> {
        loop {
            if self.taken_in_a_row == MAX_IN_A_ROW {
                self.taken_in_a_row = 0;
                yield_now().await;
            }
            let mut head = [0; WRITE_HEAD_BYTES];
            match self.messages.try_receive(&mut head, &self.next_data) {
                Ok(Some(length)) => {
                    self.taken_in_a_row += 1;
                    match self.take(&head, length)? {
                        (_, _, Question::End) => return None,
                        (unique, data, question) => return Some(self.admit(unique, data, question).await),
                    }
                }
                Ok(None) => {
                    self.taken_in_a_row = 0;
                    self.messages.readable().await;
                }
                // The request was interrupted, or a signal arrived.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {}
                // Usually ENODEV: the folder was unmounted.
                Err(_) => return None,
            }
        }
    }

    /// Parses a received message. `None` if it is not a request: the device is then unusable.
    fn take(&mut self, head: &[u8], length: usize) -> Option<(u64, Option<Buffer>, Question)> {
        let beyond_head = length.saturating_sub(head.len());
        let (unique, question) = wire::parse(&head[..length.min(head.len())])?;
        if let Question::Transfer(Transfer::Write { length, .. }) = &question {
            if *length as usize != beyond_head {
                return Some((unique, None, Question::Refused(libc::EINVAL)));
            }
            return Some((unique, Some(self.data(beyond_head)), question));
        }
        if beyond_head == 0 {
            return Some((unique, None, question));
        }
        let mut whole = head.to_vec();
        self.next_data.with(|bytes| whole.extend_from_slice(&bytes[..beyond_head]));
        wire::parse(&whole).map(|(unique, question)| (unique, None, question))
    }

    /// The received data, in a buffer of their own.
    fn data(&mut self, length: usize) -> Buffer {
        let received = self.next_data.slice(0..length);
        if length >= KEPT_BYTES {
            self.next_data = self.buffers.allocate(MAX_REQUEST_BYTES);
            return received;
        }
        let copy = self.buffers.allocate(length);
        copy.copy_from(&received);
        copy
    }

    async fn admit(&self, unique: u64, data: Option<Buffer>, question: Question) -> Asked {
        let bytes = match &question {
            Question::Transfer(Transfer::Read { length, .. } | Transfer::Write { length, .. }) => {
                u64::from(*length)
            }
            _ => 0,
        };
        let held = Held::Here { _permit: self.room.acquire(bytes.max(LEAST_COUNTED_BYTES)).await };
        Asked { question, data, answer: Answer::on(self.messages.clone(), unique), held }
    }
}

/// The pending answer to a request. Dropping it answers with an I/O error.
pub(super) struct Answer {
    /// `None` after the answer.
    messages: Option<Rc<dyn Messages>>,
    unique: u64,
}

impl Answer {
    /// The answer to the request with this number, over this carrier.
    pub(super) fn on(messages: Rc<dyn Messages>, unique: u64) -> Self {
        Self { messages: Some(messages), unique }
    }

    /// Sends nothing: another thread answers the request with this number.
    pub(super) fn leave_to_another_thread(mut self) -> u64 {
        self.messages = None;
        self.unique
    }

    pub(super) fn error(mut self, number: Errno) {
        self.give(number.0, None);
    }

    /// Reports success with these bytes.
    pub(super) fn bytes(mut self, bytes: Vec<u8>) {
        self.give(0, Some(Piece::from(bytes)));
    }

    /// Reports success with the data read. The buffer must not change any more.
    pub(super) fn data(mut self, data: Buffer) {
        self.give(0, Some(Piece::from(data)));
    }

    /// Sends nothing, for requests that expect no answer.
    pub(super) fn none(mut self) {
        self.messages = None;
    }

    fn give(&mut self, error: i32, body: Option<Piece>) {
        let Some(messages) = self.messages.take() else { return };
        let body_bytes = body.as_ref().map_or(0, Piece::len);
        let mut pieces = Vec::with_capacity(2);
        pieces.push(Piece::copy_of(&wire::answer_head(self.unique, error, body_bytes)));
        pieces.extend(body.filter(|body| !body.is_empty()));
        messages.send(pieces);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.give(libc::EIO, None);
    }
}
