//! Waiting for one operation of a socket. Expected fault: an executor that has ended; a future that
//! is dropped cancels its operation.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll};

use crate::ring::Ring;
use crate::ring::socket_op::{Answer, Outcome, SocketOp, SocketWork};

/// A send from this length on goes to the kernel at once instead of with the turn's other requests:
/// the peer takes it while this thread goes on. (1 MiB sequential reads of an NBD export in memory
/// reached 0.91 of nbdkit's rate without, 1.06 with it.)
const PROMPT_SEND_BYTES: usize = 64 << 10;

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
