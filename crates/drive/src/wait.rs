//! Waiting between tasks of one thread: an event, a counting semaphore, a bounded channel and
//! rounds of work. All are fair (first come, first served), so that runs in virtual time are
//! repeatable.

mod rounds;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};

pub use rounds::{Round, Rounds};

/// Wakes all waiting tasks. They re-check their condition in a loop.
#[derive(Default)]
pub struct Event {
    generation: Cell<u64>,
    next_ticket: Cell<u64>,
    /// In ticket order, so that an entry is found by bisection.
    waiting: RefCell<Vec<(u64, Waker)>>,
}

impl Event {
    /// Creates an event without waiters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes every task that waits now.
    pub fn notify_all(&self) {
        self.generation.set(self.generation.get() + 1);
        if self.waiting.borrow().is_empty() {
            return;
        }
        // Taken out of the cell first: waking may run code that waits here again, or drops a
        // waiter.
        let mut woken = self.waiting.take();
        for (_, waker) in woken.drain(..) {
            waker.wake();
        }
        let mut waiting = self.waiting.borrow_mut();
        if waiting.capacity() == 0 {
            *waiting = woken; // keeps the memory for reuse
        }
    }

    /// Completes at the next [`Self::notify_all`] after this call (not after the first poll).
    pub fn wait(&self) -> impl Future<Output = ()> + '_ {
        EventWait { event: self, seen: self.generation.get(), ticket: None }
    }
}

struct EventWait<'a> {
    event: &'a Event,
    /// Generation that must pass.
    seen: u64,
    /// `None` until first polled.
    ticket: Option<u64>,
}

impl Future for EventWait<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<()> {
        if self.event.generation.get() != self.seen {
            return Poll::Ready(());
        }
        let mut waiting = self.event.waiting.borrow_mut();
        if let Some(ticket) = self.ticket {
            // Polled again for another reason: still one entry, or polling in a loop would fill
            // memory.
            let index = waiting.binary_search_by_key(&ticket, |entry| entry.0).expect("waits until notified");
            waiting[index].1.clone_from(context.waker());
        } else {
            let ticket = self.event.next_ticket.replace(self.event.next_ticket.get() + 1);
            waiting.push((ticket, context.waker().clone()));
            drop(waiting);
            self.ticket = Some(ticket);
        }
        Poll::Pending
    }
}

impl Drop for EventWait<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut waiting = self.event.waiting.borrow_mut();
        if let Ok(index) = waiting.binary_search_by_key(&ticket, |entry| entry.0) {
            let removed = waiting.remove(index);
            drop(waiting); // dropping a waker may re-enter this event
            drop(removed);
        }
    }
}

struct Waiter {
    ticket: u64,
    amount: u64,
    waker: Option<Waker>,
}

struct SemaphoreShared {
    available: Cell<u64>,
    limit: u64,
    next_ticket: Cell<u64>,
    /// In ticket order. A ticket that has left the queue was granted.
    queue: RefCell<VecDeque<Waiter>>,
}

impl SemaphoreShared {
    fn give_back(&self, amount: u64) {
        self.available.set(self.available.get() + amount);
        loop {
            let mut queue = self.queue.borrow_mut();
            let Some(first) = queue.front() else { return };
            if first.amount > self.available.get() {
                return;
            }
            self.available.set(self.available.get() - first.amount);
            let granted = queue.pop_front().expect("just seen");
            drop(queue); // waking may re-enter this semaphore
            if let Some(waker) = granted.waker {
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
    /// Creates a semaphore with `limit` free units.
    pub fn new(limit: u64) -> Self {
        Self::with_available(limit, limit)
    }

    fn with_available(available: u64, limit: u64) -> Self {
        Self {
            shared: Rc::new(SemaphoreShared {
                available: Cell::new(available),
                limit,
                next_ticket: Cell::new(0),
                queue: RefCell::new(VecDeque::new()),
            }),
        }
    }

    /// Number of free units.
    pub fn available(&self) -> u64 {
        self.shared.available.get()
    }

    /// Number of queued waiters.
    pub fn waiting(&self) -> usize {
        self.shared.queue.borrow().len()
    }

    /// Takes `amount` units at once, or returns `None` if that would have to wait.
    pub fn try_acquire(&self, amount: u64) -> Option<SemaphorePermit> {
        let amount = amount.min(self.shared.limit);
        let free = self.shared.available.get();
        if free < amount || !self.shared.queue.borrow().is_empty() {
            return None;
        }
        self.shared.available.set(free - amount);
        Some(SemaphorePermit { shared: self.shared.clone(), amount })
    }

    /// Waits for `amount` units. More than the limit counts as the limit, so that a huge request
    /// waits for all units instead of for ever.
    pub async fn acquire(&self, amount: u64) -> SemaphorePermit {
        if let Some(permit) = self.try_acquire(amount) {
            return permit;
        }
        let amount = amount.min(self.shared.limit);
        let ticket = self.shared.next_ticket.replace(self.shared.next_ticket.get() + 1);
        self.shared.queue.borrow_mut().push_back(Waiter { ticket, amount, waker: None });
        Acquire { shared: &self.shared, ticket, amount, taken: false }.await;
        SemaphorePermit { shared: self.shared.clone(), amount }
    }
}

/// A place in the queue. If dropped early, it returns its units, or leaves the queue.
struct Acquire<'a> {
    shared: &'a SemaphoreShared,
    ticket: u64,
    amount: u64,
    taken: bool,
}

impl Future for Acquire<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<()> {
        let mut queue = self.shared.queue.borrow_mut();
        let Ok(index) = queue.binary_search_by_key(&self.ticket, |waiter| waiter.ticket) else {
            drop(queue);
            self.taken = true;
            return Poll::Ready(());
        };
        queue[index].waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        let mut queue = self.shared.queue.borrow_mut();
        let place = queue.binary_search_by_key(&self.ticket, |waiter| waiter.ticket);
        let removed = place.ok().and_then(|index| queue.remove(index));
        drop(queue);
        // Even if nothing was granted: units too few for this waiter may suffice for those behind
        // it.
        self.shared.give_back(if removed.is_some() { 0 } else { self.amount });
    }
}

/// Units taken from a [`Semaphore`]; returned on drop.
pub struct SemaphorePermit {
    shared: Rc<SemaphoreShared>,
    amount: u64,
}

impl Drop for SemaphorePermit {
    fn drop(&mut self) {
        self.shared.give_back(self.amount);
    }
}

impl SemaphorePermit {
    /// Moves some of the units into a separate permit.
    pub fn split(&mut self, amount: u64) -> SemaphorePermit {
        self.amount = self.amount.checked_sub(amount).expect("no more than the permit holds");
        SemaphorePermit { shared: self.shared.clone(), amount }
    }

    /// Keeps the units for good.
    fn consume(mut self) {
        self.amount = 0;
    }
}

struct ChannelShared<T> {
    items: RefCell<VecDeque<T>>,
    /// One unit for each free place. Waiting for units, not for "something changed", keeps waiters
    /// in order.
    room: Semaphore,
    /// One unit for each item not yet promised to a receiver.
    filled: Semaphore,
    closed: Cell<bool>,
}

/// Units that closing adds to both semaphores of a channel, so that all waiters proceed.
const WITHOUT_END: u64 = u64::MAX / 2;

/// A bounded queue between tasks. Clones share the queue.
pub struct Channel<T>(Rc<ChannelShared<T>>);

impl<T> Clone for Channel<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Channel<T> {
    /// Creates a channel of at most `limit` items; `limit` is at least one.
    pub fn new(limit: usize) -> Self {
        assert!(limit > 0, "a channel holds at least one item");
        Self(Rc::new(ChannelShared {
            items: RefCell::new(VecDeque::new()),
            room: Semaphore::new(limit as u64),
            filled: Semaphore::with_available(0, limit as u64),
            closed: Cell::new(false),
        }))
    }

    /// Waits for room, then adds the item; returns it if the channel is closed.
    pub async fn send(&self, item: T) -> Result<(), T> {
        let room = self.0.room.acquire(1).await;
        if self.0.closed.get() {
            return Err(item);
        }
        room.consume();
        self.0.items.borrow_mut().push_back(item);
        self.0.filled.shared.give_back(1);
        Ok(())
    }

    /// Waits for an item; `None` once the channel is closed and empty.
    pub async fn receive(&self) -> Option<T> {
        let filled = self.0.filled.acquire(1).await;
        let item = self.0.items.borrow_mut().pop_front();
        if item.is_some() {
            filled.consume();
            self.0.room.shared.give_back(1);
        } else {
            assert!(self.0.closed.get(), "an item behind every unit of an open channel");
        }
        item
    }

    /// Closes the channel to new items; those inside can still be received.
    pub fn close(&self) {
        if self.0.closed.replace(true) {
            return;
        }
        self.0.room.shared.give_back(WITHOUT_END);
        self.0.filled.shared.give_back(WITHOUT_END);
    }
}

#[cfg(test)]
mod tests;
