//! Waiting between tasks of one thread: an event, a counting semaphore and a bounded channel. All are fair (first come,
//! first served), so that runs in virtual time are repeatable.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};

/// Wakes all who wait. Waiters re-check their condition in a loop.
#[derive(Default)]
pub struct Event {
    generation: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
}

impl Event {
    /// No one waits yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes everyone who waits now.
    pub fn notify_all(&self) {
        self.generation.set(self.generation.get() + 1);
        for waker in self.waiting.borrow_mut().drain(..) {
            waker.wake();
        }
    }

    /// Ends at the next [`Self::notify_all`] after this call (not after the first poll).
    pub fn wait(&self) -> impl Future<Output = ()> + '_ {
        let seen = self.generation.get();
        std::future::poll_fn(move |context| {
            if self.generation.get() != seen {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().push(context.waker().clone());
            Poll::Pending
        })
    }
}

struct Waiter {
    amount: u64,
    granted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

struct SemaphoreShared {
    available: Cell<u64>,
    limit: u64,
    queue: RefCell<VecDeque<Rc<Waiter>>>,
}

impl SemaphoreShared {
    fn give_back(&self, amount: u64) {
        self.available.set(self.available.get() + amount);
        let mut queue = self.queue.borrow_mut();
        while let Some(first) = queue.front() {
            if first.amount > self.available.get() {
                break;
            }
            let first = queue.pop_front().expect("just seen");
            self.available.set(self.available.get() - first.amount);
            first.granted.set(true);
            if let Some(waker) = first.waker.borrow_mut().take() {
                waker.wake();
            }
        }
    }
}

/// A fair counting semaphore: bounds requests, bytes or memory in use.
#[derive(Clone)]
pub struct Semaphore {
    shared: Rc<SemaphoreShared>,
}

impl Semaphore {
    /// With `limit` units free.
    pub fn new(limit: u64) -> Self {
        Self {
            shared: Rc::new(SemaphoreShared {
                available: Cell::new(limit),
                limit,
                queue: RefCell::new(VecDeque::new()),
            }),
        }
    }

    /// Units free now.
    pub fn available(&self) -> u64 {
        self.shared.available.get()
    }

    /// Takes `amount` units at once, or `None` if that would have to wait.
    pub fn try_acquire(&self, amount: u64) -> Option<SemaphorePermit> {
        let amount = amount.min(self.shared.limit);
        let free = self.shared.available.get();
        if free < amount || !self.shared.queue.borrow().is_empty() {
            return None;
        }
        self.shared.available.set(free - amount);
        Some(SemaphorePermit { shared: self.shared.clone(), amount })
    }

    /// Waits for `amount` units; more than the limit counts as the limit, so that a huge request waits for all of it
    /// instead of for ever.
    pub async fn acquire(&self, amount: u64) -> SemaphorePermit {
        if let Some(permit) = self.try_acquire(amount) {
            return permit;
        }
        let amount = amount.min(self.shared.limit);
        let waiter = Rc::new(Waiter { amount, granted: Cell::new(false), waker: RefCell::new(None) });
        self.shared.queue.borrow_mut().push_back(waiter.clone());
        Acquire { shared: &self.shared, waiter: Some(waiter) }.await;
        SemaphorePermit { shared: self.shared.clone(), amount }
    }
}

struct Acquire<'a> {
    shared: &'a SemaphoreShared,
    waiter: Option<Rc<Waiter>>,
}

impl Future for Acquire<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<()> {
        let waiter = self.waiter.as_ref().expect("not polled after completion");
        if waiter.granted.get() {
            self.waiter = None;
            return Poll::Ready(());
        }
        *waiter.waker.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        if waiter.granted.get() {
            self.shared.give_back(waiter.amount);
        } else {
            self.shared.queue.borrow_mut().retain(|other| !Rc::ptr_eq(other, &waiter));
        }
    }
}

/// Units taken from a [`Semaphore`]; given back on drop.
pub struct SemaphorePermit {
    shared: Rc<SemaphoreShared>,
    amount: u64,
}

impl Drop for SemaphorePermit {
    fn drop(&mut self) {
        self.shared.give_back(self.amount);
    }
}

struct ChannelShared<T> {
    items: RefCell<VecDeque<T>>,
    limit: usize,
    changed: Event,
    closed: Cell<bool>,
}

/// A bounded queue between tasks. Clones are the same queue.
pub struct Channel<T>(Rc<ChannelShared<T>>);

impl<T> Clone for Channel<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Channel<T> {
    /// Holds at most `limit` items.
    pub fn new(limit: usize) -> Self {
        Self(Rc::new(ChannelShared {
            items: RefCell::new(VecDeque::new()),
            limit,
            changed: Event::new(),
            closed: Cell::new(false),
        }))
    }

    /// Waits for room, then adds; gives the item back if the channel is closed.
    pub async fn send(&self, item: T) -> Result<(), T> {
        loop {
            if self.0.closed.get() {
                return Err(item);
            }
            if self.0.items.borrow().len() < self.0.limit {
                self.0.items.borrow_mut().push_back(item);
                self.0.changed.notify_all();
                return Ok(());
            }
            self.0.changed.wait().await;
        }
    }

    /// Waits for an item; `None` once the channel is closed and empty.
    pub async fn receive(&self) -> Option<T> {
        loop {
            let item = self.0.items.borrow_mut().pop_front();
            if item.is_some() {
                self.0.changed.notify_all();
                return item;
            }
            if self.0.closed.get() {
                return None;
            }
            self.0.changed.wait().await;
        }
    }

    /// No more items go in; those inside can still be received.
    pub fn close(&self) {
        self.0.closed.set(true);
        self.0.changed.notify_all();
    }
}
