//! The answer to a submitted request: a future that costs nothing if the drive answered at once,
//! and a recycled cell otherwise. No allocation per request in steady state.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};

use crate::error::IoResult;

/// Receives answers in place of an awaiting task. Called from inside the drive: it may only record
/// the answer and wake a task, and must not submit to the drive.
pub trait CompletionListener {
    /// Reports the answer to the request registered under `token`.
    fn completed(&self, token: u64, result: IoResult);
}

#[derive(Default)]
struct Shared {
    result: Cell<Option<IoResult>>,
    waker: Cell<Option<Waker>>,
    listener: Cell<Option<(Rc<dyn CompletionListener>, u64)>>,
}

/// Cells kept per thread for reuse; more requests in flight are allowed, only slower.
const KEPT_CELLS: usize = 4096;

thread_local! {
    static FREE: RefCell<Vec<Rc<Shared>>> = const { RefCell::new(Vec::new()) };
}

fn recycle(shared: Rc<Shared>) {
    if Rc::strong_count(&shared) > 1 {
        return;
    }
    shared.result.take();
    shared.waker.take();
    shared.listener.take();
    // Not reachable during thread teardown: the cell is then freed.
    let _ = FREE.try_with(|free| {
        let mut free = free.borrow_mut();
        if free.len() < KEPT_CELLS {
            free.push(shared);
        }
    });
}

/// Future of one request's result. Dropping it does not cancel the request.
#[must_use = "a request may have failed"]
pub struct Completion(State);

enum State {
    Ready(Option<IoResult>),
    Waiting(Option<Rc<Shared>>),
}

impl Completion {
    /// Creates a completion that is already answered.
    pub fn ready(result: IoResult) -> Self {
        Self(State::Ready(Some(result)))
    }

    /// Returns the result if it is available, else the completion. Saves callers a trip through the
    /// executor.
    pub fn try_take(mut self) -> Result<IoResult, Self> {
        match &mut self.0 {
            State::Ready(result) => Ok(result.take().expect("taken once")),
            State::Waiting(shared) => match shared.as_ref().and_then(|shared| shared.result.take()) {
                Some(result) => Ok(result),
                None => Err(self),
            },
        }
    }
}

impl Completion {
    /// Passes the answer to `listener` under `token` when it arrives. An answer that is already
    /// available is returned instead, and the listener is not called.
    pub fn notify(mut self, listener: Rc<dyn CompletionListener>, token: u64) -> Option<IoResult> {
        match &mut self.0 {
            State::Ready(result) => Some(result.take().expect("taken once")),
            State::Waiting(shared) => {
                let cell = shared.as_ref().expect("not polled after completion");
                if let Some(result) = cell.result.take() {
                    return Some(result);
                }
                cell.listener.set(Some((listener, token)));
                None
            }
        }
    }
}

impl Future for Completion {
    type Output = IoResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<IoResult> {
        match &mut self.0 {
            State::Ready(result) => Poll::Ready(result.take().expect("not polled after completion")),
            State::Waiting(shared) => {
                let cell = shared.as_ref().expect("not polled after completion");
                if let Some(result) = cell.result.take() {
                    recycle(shared.take().expect("just seen"));
                    return Poll::Ready(result);
                }
                let waker = match cell.waker.take() {
                    Some(waker) if waker.will_wake(context.waker()) => waker,
                    _ => context.waker().clone(),
                };
                cell.waker.set(Some(waker));
                Poll::Pending
            }
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if let State::Waiting(shared) = &mut self.0
            && let Some(shared) = shared.take()
        {
            recycle(shared);
        }
    }
}

/// The drive's end: answers once. If it is dropped unanswered, the request stays unanswered for
/// ever (a stuck drive).
pub struct CompletionSender(Option<Rc<Shared>>);

impl CompletionSender {
    /// Delivers the answer and wakes the waiting task.
    pub fn complete(mut self, result: IoResult) {
        let shared = self.0.take().expect("answered once");
        if let Some((listener, token)) = shared.listener.take() {
            listener.completed(token, result);
            recycle(shared);
            return;
        }
        shared.result.set(Some(result));
        if let Some(waker) = shared.waker.take() {
            waker.wake();
        }
        // The future holds the other reference and recycles the cell; if it is already gone, the
        // cell comes back here.
        recycle(shared);
    }
}

impl Drop for CompletionSender {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            recycle(shared);
        }
    }
}

/// Creates a pair: the drive keeps the sender, the caller awaits the completion.
pub fn completion() -> (CompletionSender, Completion) {
    let shared = FREE.with(|free| free.borrow_mut().pop()).unwrap_or_default();
    (CompletionSender(Some(shared.clone())), Completion(State::Waiting(Some(shared))))
}

#[cfg(test)]
mod tests;
