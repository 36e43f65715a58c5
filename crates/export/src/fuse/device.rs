//! The kernel's end of a mount: its requests are taken here, as many in a row as wait, and what is
//! answered to them goes back.
//!
//! Requests are read on the executor's own thread: a thread beside it would have to wake it for
//! every request. Only the first message, in which version and sizes are agreed, is waited for.
//!
//! Expected faults: a kernel that speaks another version, a mount that ends at any moment, with
//! requests under way; requests that are taken back while they are read; answers that no process
//! waits for.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::rc::Rc;

use stripewise_drive::{Buffer, BufferPool, Semaphore, SemaphorePermit, yield_now};
use stripewise_runtime::{FuseMountPoint, MessageFile, Network, Piece};

use super::wire::{self, Agreement, Errno, Question, Transfer, WRITE_HEAD_BYTES};

/// Reads and writes come in pieces of at most this.
const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Asynchronous requests (of loop devices, of io_uring) that the kernel hands over at a time.
const MAX_BACKGROUND: u16 = 512;
/// Every request takes some memory, whatever its data: this bounds their number, too.
const LEAST_COUNTED_BYTES: u64 = 16 << 10;
/// Data that fill so much of the memory they were read into stay there; less is copied out, so that
/// little data never hold much memory.
const KEPT_BYTES: usize = MAX_REQUEST_BYTES / 2;
/// Memory of data that is kept for further ones.
const RETAINED_BYTES: usize = 16 << 20;
/// Requests taken in a row before those that were begun go on.
const MAX_IN_A_ROW: usize = 32;

/// Room for the first message; the kernel wants this much for any.
const FIRST_MESSAGE_BYTES: usize = 8192;

/// Agrees with the kernel on version, sizes and abilities. Blocks until the kernel has asked, which
/// it does when it mounts.
pub(super) fn agree(mount_point: &FuseMountPoint) -> io::Result<()> {
    let mut device = File::from(mount_point.as_fd().try_clone_to_owned()?);
    let mut message = [0; FIRST_MESSAGE_BYTES];
    loop {
        let length = match device.read(&mut message) {
            Ok(length) => length,
            // It was taken back, or a signal came.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => continue,
            Err(error) => return Err(error),
        };
        match wire::agree(&message[..length], MAX_REQUEST_BYTES as u32, MAX_BACKGROUND) {
            Agreement::Reached(answer) => return device.write_all(&answer),
            Agreement::AskAgain(answer) => device.write_all(&answer)?,
            Agreement::Impossible(answer) => {
                device.write_all(&answer)?;
                return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel speaks another FUSE"));
            }
        }
    }
}

/// A request, with what its answer needs.
pub(super) struct Asked {
    pub(super) question: Question,
    /// Of a write.
    pub(super) data: Option<Buffer>,
    pub(super) answer: Answer,
    /// Counts it against what may be under way, for as long as it lives.
    pub(super) permit: SemaphorePermit,
}

/// Where requests come from.
pub(super) struct Device {
    file: Rc<MessageFile>,
    buffers: BufferPool,
    /// Memory for the data of the next request.
    next_data: Buffer,
    room: Semaphore,
    taken_in_a_row: usize,
}

impl Device {
    /// The requests of a mount, of which at most `under_way_bytes` are under way at a time.
    pub(super) fn new(
        network: &Network,
        mount_point: &FuseMountPoint,
        under_way_bytes: u64,
    ) -> io::Result<Self> {
        let buffers = BufferPool::new(RETAINED_BYTES);
        Ok(Self {
            file: Rc::new(network.message_file(mount_point.as_fd())?),
            next_data: buffers.allocate(MAX_REQUEST_BYTES),
            buffers,
            room: Semaphore::new(under_way_bytes),
            taken_in_a_row: 0,
        })
    }

    /// The next request, when there is room for it; `None` when it is mounted no more.
    pub(super) async fn next(&mut self) -> Option<Asked> {
        loop {
            if self.taken_in_a_row == MAX_IN_A_ROW {
                self.taken_in_a_row = 0;
                yield_now().await;
            }
            let mut head = [0; WRITE_HEAD_BYTES];
            match self.file.try_receive(&mut head, &self.next_data) {
                Ok(Some(length)) => {
                    self.taken_in_a_row += 1;
                    match self.take(&head, length)? {
                        (_, _, Question::End) => return None,
                        (unique, data, question) => return Some(self.admit(unique, data, question).await),
                    }
                }
                Ok(None) => {
                    self.taken_in_a_row = 0;
                    self.file.readable().await;
                }
                // It was taken back, or a signal came.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => {}
                // As a rule ENODEV: it was unmounted.
                Err(_) => return None,
            }
        }
    }

    /// A message that was received. `None` for what is none: then nothing that comes can be relied
    /// on.
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

    /// The data that were received, in memory that is theirs.
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
        let permit = self.room.acquire(bytes.max(LEAST_COUNTED_BYTES)).await;
        Asked { question, data, answer: Answer { file: Some(self.file.clone()), unique }, permit }
    }
}

/// The answer to a request; one that is dropped is an I/O error.
pub(super) struct Answer {
    /// `None` once it was given.
    file: Option<Rc<MessageFile>>,
    unique: u64,
}

impl Answer {
    pub(super) fn error(mut self, number: Errno) {
        self.give(number.0, None);
    }

    /// Well done, with these bytes.
    pub(super) fn bytes(mut self, bytes: Vec<u8>) {
        self.give(0, Some(Piece::from(bytes)));
    }

    /// Well done; what was read. The buffer is not changed any more.
    pub(super) fn data(mut self, data: Buffer) {
        self.give(0, Some(Piece::from(data)));
    }

    /// To a request that is not answered.
    pub(super) fn none(mut self) {
        self.file = None;
    }

    fn give(&mut self, error: i32, body: Option<Piece>) {
        let Some(file) = self.file.take() else { return };
        let body_bytes = body.as_ref().map_or(0, Piece::len);
        let mut pieces = Vec::with_capacity(2);
        pieces.push(Piece::copy_of(&wire::answer_head(self.unique, error, body_bytes)));
        pieces.extend(body.filter(|body| !body.is_empty()));
        file.send(pieces);
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.give(libc::EIO, None);
    }
}
