//! Time and tasks for the engine: real or virtual, without a difference to it.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use crate::messages::shard::Shard;

/// Identifies a timer, to cancel it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimerId(pub u64);

/// A monotonic clock with timers.
pub trait Clock {
    /// Nanoseconds since some fixed start.
    fn now_ns(&self) -> u64;
    /// As [`Self::now_ns`], from another start, and continues while the machine sleeps.
    fn boot_ns(&self) -> u64 {
        self.now_ns()
    }
    /// Wakes `waker` once the clock has reached `deadline_ns`.
    fn wake_at(&self, deadline_ns: u64, waker: Waker) -> TimerId;
    /// Cancels a timer; has no effect if it has fired.
    fn cancel(&self, timer: TimerId);
}

/// Starts tasks on this thread's executor.
pub trait Spawn {
    /// Runs `task` concurrently until it ends.
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()>>>);
    /// Other threads that may have work of this one, each with an executor of its own.
    fn shards(&self) -> Vec<Arc<dyn Shard>> {
        Vec::new()
    }
}

/// The clock and the spawner, for every component.
#[derive(Clone)]
pub struct Context {
    clock: Rc<dyn Clock>,
    spawner: Rc<dyn Spawn>,
}

impl Context {
    /// A context of an executor's clock and spawner.
    pub fn new(clock: Rc<dyn Clock>, spawner: Rc<dyn Spawn>) -> Self {
        Self { clock, spawner }
    }

    /// Nanoseconds on the executor's clock.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Nanoseconds on a clock that continues while the machine sleeps.
    pub fn boot_ns(&self) -> u64 {
        self.clock.boot_ns()
    }

    /// Ends `duration_ns` from now.
    pub fn sleep_ns(&self, duration_ns: u64) -> Sleep {
        self.sleep_until_ns(self.now_ns().saturating_add(duration_ns))
    }

    /// Ends at `deadline_ns`, at once if that has passed.
    pub fn sleep_until_ns(&self, deadline_ns: u64) -> Sleep {
        Sleep { clock: self.clock.clone(), deadline_ns, timer: None }
    }

    /// `work`'s result, or [`TimedOut`] if it takes longer than `limit_ns`.
    pub fn time_limit_ns<F: Future + Unpin>(&self, limit_ns: u64, work: F) -> TimeLimit<F> {
        TimeLimit { work, sleep: self.sleep_ns(limit_ns) }
    }

    /// Other threads that may have work of this one, each with an executor of its own.
    pub fn shards(&self) -> Vec<Arc<dyn Shard>> {
        self.spawner.shards()
    }

    /// Starts a task; its result can be awaited through the handle. Dropping the handle does not
    /// stop the task.
    pub fn spawn<T: 'static>(&self, task: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        let shared = Rc::new(RefCell::new(Joined { result: None, waker: None }));
        self.spawner.spawn(Box::pin(Joinable { task, shared: shared.clone() }));
        JoinHandle { shared }
    }
}

/// Future of [`Context::sleep_ns`].
pub struct Sleep {
    clock: Rc<dyn Clock>,
    deadline_ns: u64,
    timer: Option<TimerId>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<()> {
        if let Some(timer) = self.timer.take() {
            self.clock.cancel(timer);
        }
        if self.clock.now_ns() >= self.deadline_ns {
            return Poll::Ready(());
        }
        self.timer = Some(self.clock.wake_at(self.deadline_ns, context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer.take() {
            self.clock.cancel(timer);
        }
    }
}

/// The time limit passed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;

/// Future of [`Context::time_limit_ns`].
pub struct TimeLimit<F> {
    work: F,
    sleep: Sleep,
}

impl<F: Future + Unpin> Future for TimeLimit<F> {
    type Output = Result<F::Output, TimedOut>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(result) = Pin::new(&mut self.work).poll(context) {
            return Poll::Ready(Ok(result));
        }
        Pin::new(&mut self.sleep).poll(context).map(|()| Err(TimedOut))
    }
}

struct Joined<T> {
    result: Option<T>,
    waker: Option<Waker>,
}

/// A task together with the handle that awaits its result. An `async` block would store the task
/// twice and copy it at the first poll.
struct Joinable<F: Future> {
    task: F,
    shared: Rc<RefCell<Joined<F::Output>>>,
}

impl<F: Future> Future for Joinable<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<()> {
        // SAFETY: `task` is pinned whenever `self` is: nothing here moves it out, there is no
        // `Drop` that could, and `Self` is `Unpin` only where `F` is. `shared` is never pinned.
        let (task, shared) = unsafe {
            let this = self.get_unchecked_mut();
            (Pin::new_unchecked(&mut this.task), &this.shared)
        };
        let Poll::Ready(result) = task.poll(context) else { return Poll::Pending };
        let waker = {
            let mut joined = shared.borrow_mut();
            joined.result = Some(result);
            joined.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        Poll::Ready(())
    }
}

/// Awaits a task started with [`Context::spawn`].
pub struct JoinHandle<T> {
    shared: Rc<RefCell<Joined<T>>>,
}

impl<T> JoinHandle<T> {
    /// True if the task has ended and its result was not taken yet.
    pub fn is_finished(&self) -> bool {
        self.shared.borrow().result.is_some()
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<T> {
        let mut joined = self.shared.borrow_mut();
        match joined.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                joined.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Lets every other ready task run once.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(move |context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests;
