//! Carriers of the messages between a server and its client: the kernel, over its device or over
//! io_uring, or a simulated one (`simulated.rs`).

use std::io;

use futures_util::future::LocalBoxFuture;
use stripewise_drive::Buffer;
use stripewise_runtime::{FuseRing, MessageFile, Piece};

/// The server's end of a carrier. Each request and each answer is one message.
pub(super) trait Messages {
    /// The next request, if one waits: its first bytes in `head`, the rest in `body`. Returns its
    /// length, bytes.
    ///
    /// # Errors
    /// `ENOENT` or `EINTR` where a request was withdrawn while it was received; any other once the
    /// client is gone.
    fn try_receive(&self, head: &mut [u8], body: &Buffer) -> io::Result<Option<usize>>;
    /// Waits until there may be a request, or the client is gone.
    fn readable(&self) -> LocalBoxFuture<'_, ()>;
    /// Sends an answer of these pieces. A buffer among them must not be changed any more.
    fn send(&self, pieces: Vec<Piece>);
}

impl Messages for MessageFile {
    fn try_receive(&self, head: &mut [u8], body: &Buffer) -> io::Result<Option<usize>> {
        Self::try_receive(self, head, body)
    }

    fn readable(&self) -> LocalBoxFuture<'_, ()> {
        Box::pin(Self::readable(self))
    }

    fn send(&self, pieces: Vec<Piece>) {
        Self::send(self, pieces);
    }
}

impl Messages for FuseRing {
    fn try_receive(&self, head: &mut [u8], body: &Buffer) -> io::Result<Option<usize>> {
        Self::try_receive(self, head, body)
    }

    fn readable(&self) -> LocalBoxFuture<'_, ()> {
        Box::pin(Self::readable(self))
    }

    fn send(&self, pieces: Vec<Piece>) {
        Self::send(self, &pieces);
    }
}
