//! Replies waiting to be sent: those that are ready go out together, in one system call.
//!
//! Expected faults: a client that never reads its replies. They stay here, and with them the
//! permits of their requests, so that no more requests are read; at the time limit the connection
//! is dropped, the sooner the more memory its client holds while memory is short.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::Shutdown;

use stripewise_drive::{Context, Event, SemaphorePermit};

use crate::budget::{ClientLine, Taken};
use crate::nbd::transport::Transport;
use crate::nbd::transport::patience::Patience;
use crate::nbd::wire::replies::Reply;

/// Maximum bytes per send, unless one reply alone is longer.
const SEND_BYTES: usize = 4 << 20;
/// Maximum replies per send.
const SEND_REPLIES: usize = 256;

/// Permits that a request holds until its reply is sent: its place and bytes among those of its
/// connection, and its part of the memory of all connections.
pub(crate) struct Permits {
    pub _own: [SemaphorePermit; 2],
    pub _memory: Taken,
}

#[derive(Default)]
pub(crate) struct Outbox {
    ready: RefCell<VecDeque<(Reply, Permits)>>,
    changed: Event,
    /// No more replies are added.
    ended: Cell<bool>,
    /// No more replies can be sent.
    broken: Cell<bool>,
}

impl Outbox {
    pub(in crate::nbd) fn push(&self, reply: Reply, permits: Permits) {
        if self.broken.get() {
            return;
        }
        self.ready.borrow_mut().push_back((reply, permits));
        self.changed.notify_all();
    }

    /// True if the client gets no more replies.
    pub(in crate::nbd) fn is_broken(&self) -> bool {
        self.broken.get()
    }

    pub(in crate::nbd) fn end(&self) {
        self.ended.set(true);
        self.changed.notify_all();
    }

    /// Sends until the end, or until the client stops reading.
    pub(in crate::nbd) async fn run(
        &self,
        context: &Context,
        transport: &Transport,
        stall_ns: u64,
        memory: &ClientLine,
    ) -> io::Result<()> {
        let outcome = self.send_all(context, transport, stall_ns, memory).await;
        if outcome.is_err() {
            self.broken.set(true);
            // Frees the permits, so that the reader of requests wakes and sees the end.
            let unsent = std::mem::take(&mut *self.ready.borrow_mut());
            drop(unsent);
            transport.stream().shutdown(Shutdown::Both);
        }
        outcome
    }

    async fn send_all(
        &self,
        context: &Context,
        transport: &Transport,
        stall_ns: u64,
        memory: &ClientLine,
    ) -> io::Result<()> {
        loop {
            while self.ready.borrow().is_empty() {
                if self.ended.get() {
                    return Ok(());
                }
                self.changed.wait().await;
            }
            let (pieces, permits) = self.gather();
            let send = std::pin::pin!(transport.send(pieces));
            let sent = Patience::new(context, stall_ns).wait(|| memory.haste(), send).await;
            sent.ok_or_else(|| {
                io::Error::new(io::ErrorKind::TimedOut, "it did not read its replies in time")
            })??;
            drop(permits);
        }
    }

    fn gather(&self) -> (Vec<stripewise_runtime::Piece>, Vec<Permits>) {
        let mut ready = self.ready.borrow_mut();
        let most = ready.len().min(SEND_REPLIES);
        let (mut pieces, mut permits) = (Vec::with_capacity(2 * most), Vec::with_capacity(most));
        let mut bytes = 0;
        while let Some((reply, _)) = ready.front() {
            bytes += reply.length();
            if !pieces.is_empty() && (bytes > SEND_BYTES || permits.len() == SEND_REPLIES) {
                break;
            }
            let Some((reply, held)) = ready.pop_front() else { break };
            pieces.push(reply.head);
            pieces.extend(reply.data.map(stripewise_runtime::Piece::from));
            permits.push(held);
        }
        (pieces, permits)
    }
}
