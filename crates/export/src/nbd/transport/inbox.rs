//! Received bytes that are not used yet: one large receive may bring many requests.

use std::io;

use stripewise_drive::{Buffer, BufferPool, Context};

use crate::budget::Wanted;
use crate::nbd::transport::Transport;
use crate::nbd::transport::patience::{Patience, within};

/// Size of a connection's inbox, bytes.
pub(crate) const INBOX_BYTES: usize = 64 << 10;
/// The rest of a payload is received straight into its own memory if it is longer than this, bytes;
/// else into the inbox, together with later requests.
const DIRECT_BYTES: usize = 16 << 10;
/// Maximum length of a receive straight into a payload's memory, bytes.
const PART_BYTES: usize = 1 << 20;

pub(crate) struct Inbox {
    buffer: Buffer,
    start: usize,
    end: usize,
    context: Context,
    stall_ns: u64,
}

impl Inbox {
    pub(in crate::nbd) fn new(context: &Context, stall_ns: u64) -> Self {
        let buffer = BufferPool::new(0).allocate(INBOX_BYTES);
        Self { buffer, start: 0, end: 0, context: context.clone(), stall_ns }
    }

    /// An inbox that begins with bytes that another one has received.
    pub(in crate::nbd) fn with(context: &Context, stall_ns: u64, received: &[u8]) -> Self {
        let mut inbox = Self::new(context, stall_ns);
        inbox.buffer.slice(0..received.len()).with_mut(|to| to.copy_from_slice(received));
        inbox.end = received.len();
        inbox
    }

    /// The bytes that are not used yet.
    pub(in crate::nbd) fn rest(self) -> Vec<u8> {
        self.buffer.slice(self.start..self.end).to_vec()
    }

    pub(in crate::nbd) fn available(&self) -> usize {
        self.end - self.start
    }

    /// Receives until `count` bytes (at most [`INBOX_BYTES`]) are available. `false`: the peer has
    /// closed the connection, and nothing is left. Waits for the first byte without a limit, for
    /// later ones no longer than a request may stall.
    pub(in crate::nbd) async fn need(&mut self, transport: &Transport, count: usize) -> io::Result<bool> {
        while self.available() < count {
            if self.available() == 0 {
                (self.start, self.end) = (0, 0);
            } else if INBOX_BYTES - self.start < count {
                let rest = self.buffer.slice(self.start..self.end);
                self.buffer.slice(0..rest.len()).copy_from(&rest);
                (self.start, self.end) = (0, rest.len());
            }
            let room = self.buffer.slice(self.end..INBOX_BYTES);
            let received = if self.available() == 0 {
                transport.receive(room).await?
            } else {
                let receive = std::pin::pin!(transport.receive(room));
                within(&self.context, self.stall_ns, receive).await.ok_or_else(stalled)??
            };
            if received == 0 {
                return if self.available() == 0 {
                    Ok(false)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
            self.end += received;
        }
        Ok(true)
    }

    /// As [`Self::need`], in the middle of a message: an end or a stall is an error.
    pub(in crate::nbd) async fn need_more(&mut self, transport: &Transport, count: usize) -> io::Result<()> {
        let stall_ns = self.stall_ns;
        let context = self.context.clone();
        let need = std::pin::pin!(self.need(transport, count));
        match within(&context, stall_ns, need).await.ok_or_else(stalled)?? {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Takes the first bytes, which must be available.
    pub(in crate::nbd) fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.buffer.slice(self.start..self.start + N).with(|from| bytes.copy_from_slice(from));
        self.start += N;
        bytes
    }

    /// Takes the first bytes, which must be available.
    pub(in crate::nbd) fn take_vec(&mut self, count: usize) -> Vec<u8> {
        let bytes = self.buffer.slice(self.start..self.start + count).to_vec();
        self.start += count;
        bytes
    }

    /// Fills `into` with the next bytes.
    pub(in crate::nbd) async fn fill(&mut self, transport: &Transport, into: &Buffer) -> io::Result<()> {
        let mut done = self.copy_into(into, 0);
        while into.len() - done > DIRECT_BYTES {
            let part = into.slice(done..into.len().min(done + PART_BYTES));
            done += part.len();
            let receive = std::pin::pin!(transport.receive_all(part));
            within(&self.context, self.stall_ns, receive).await.ok_or_else(stalled)??;
        }
        if done < into.len() {
            self.need_more(transport, into.len() - done).await?;
            self.copy_into(into, done);
        }
        Ok(())
    }

    /// As [`Self::fill`], with memory from the budget of all connections. Memory is taken for a
    /// part once the part before it is received: a length that was only announced takes none. While
    /// other clients wait for its memory, all parts together have the time limit of one.
    pub(in crate::nbd) async fn fill_from_budget(
        &mut self,
        transport: &Transport,
        into: &Buffer,
        wanted: &mut Wanted<'_>,
    ) -> io::Result<()> {
        if self.available() == 0 {
            self.need_more(transport, 1).await?;
        }
        let (context, stall_ns) = (self.context.clone(), self.stall_ns);
        let mut patience = Patience::new(&context, stall_ns);
        let mut done = 0;
        while done < into.len() {
            let end = into.len().min(done + PART_BYTES);
            wanted.add((end - done) as u64).await;
            if !wanted.is_first() {
                patience = Patience::new(&context, stall_ns);
            }
            let haste = || wanted.haste();
            let part = into.slice(done..end);
            let copied = self.copy_into(&part, 0);
            let rest = part.slice(copied..part.len());
            if rest.len() > DIRECT_BYTES {
                let receive = std::pin::pin!(transport.receive_all(rest));
                patience.wait(haste, receive).await.ok_or_else(stalled)??;
            } else if !rest.is_empty() {
                let is_there = {
                    let need = std::pin::pin!(self.need(transport, rest.len()));
                    patience.wait(haste, need).await.ok_or_else(stalled)??
                };
                if !is_there {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                self.copy_into(&rest, 0);
            }
            done = end;
        }
        Ok(())
    }

    /// Discards the next bytes.
    pub(in crate::nbd) async fn skip(&mut self, transport: &Transport, count: u64) -> io::Result<()> {
        let mut left = count;
        while left > 0 {
            if self.available() == 0 {
                self.need_more(transport, 1).await?;
            }
            let passed = left.min(self.available() as u64);
            self.start += passed as usize;
            left -= passed;
        }
        Ok(())
    }

    fn copy_into(&mut self, into: &Buffer, at: usize) -> usize {
        let count = self.available().min(into.len() - at);
        into.slice(at..at + count).copy_from(&self.buffer.slice(self.start..self.start + count));
        self.start += count;
        at + count
    }
}

fn stalled() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it stopped in the middle of a request")
}
