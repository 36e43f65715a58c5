//! Messages from one shard to another, in order. The messages of one turn of the sender gather and
//! go together: one lock, one wake.
//!
//! No limit here: each message is one of a request that its sender has admitted, or of a
//! connection.
//!
//! Expected faults: a receiver that has ended (messages to it vanish, and their memory with them),
//! a sender that has ended (the receiver gets what was sent, then the end).

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::context::Context;
use crate::random::SplitMix64;
use crate::wait::Event;

/// Longest delay of a delivery in virtual time, ns.
const LONGEST_DELAY_NS: u64 = 40_000;

/// Time at which gathered messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// At the end of the sender's turn.
    AtOnce,
    /// In virtual time: after a time drawn from this seed, so that messages of several shards
    /// arrive in an order that the seed decides.
    Drawn(u64),
}

/// Messages that a thread has sent, and locks of queues that it has taken: what requests to other
/// shards cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCounts {
    /// Messages sent.
    pub messages: u64,
    /// Locks taken, to send and to receive.
    pub locks: u64,
}

thread_local! {
    static COUNTS: Cell<MessageCounts> = const { Cell::new(MessageCounts { messages: 0, locks: 0 }) };
}

impl MessageCounts {
    /// The counts of this thread so far.
    pub fn of_this_thread() -> Self {
        COUNTS.get()
    }

    fn add(messages: u64, locks: u64) {
        let counts = COUNTS.get();
        COUNTS.set(Self { messages: counts.messages + messages, locks: counts.locks + locks });
    }
}

struct State<T> {
    queue: Vec<T>,
    /// The receiver's task, while it waits.
    waiting: Option<Waker>,
    sender_gone: bool,
    receiver_gone: bool,
}

struct Shared<T>(Mutex<State<T>>);

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        MessageCounts::add(0, 1);
        // A panic under the lock leaves a usable queue.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, then wakes the receiver if it waits.
    fn change(&self, change: impl FnOnce(&mut State<T>)) {
        let waiting = {
            let mut state = self.lock();
            change(&mut state);
            state.waiting.take()
        };
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

/// Sending end, before its thread opens it.
pub(crate) struct Outlet<T>(Arc<Shared<T>>);

/// Receiving end.
pub(crate) struct Inlet<T>(Arc<Shared<T>>);

/// The two ends of a queue.
pub(crate) fn batches<T>() -> (Outlet<T>, Inlet<T>) {
    let state = State { queue: Vec::new(), waiting: None, sender_gone: false, receiver_gone: false };
    let shared = Arc::new(Shared(Mutex::new(state)));
    (Outlet(shared.clone()), Inlet(shared))
}

/// Sending end on its thread.
pub(crate) struct Batch<T> {
    outlet: Outlet<T>,
    gathered: RefCell<Vec<T>>,
    changed: Event,
    closed: Cell<bool>,
}

impl<T: 'static> Outlet<T> {
    /// Starts the task that delivers.
    pub(crate) fn open(self, context: &Context, delivery: Delivery) -> Rc<Batch<T>> {
        let batch = Rc::new(Batch {
            outlet: self,
            gathered: RefCell::default(),
            changed: Event::new(),
            closed: Cell::new(false),
        });
        let (of_task, context_of_task) = (batch.clone(), context.clone());
        drop(context.spawn(async move { of_task.deliver(&context_of_task, delivery).await }));
        batch
    }
}

impl<T> Batch<T> {
    /// Adds a message.
    pub(crate) fn push(&self, message: T) {
        MessageCounts::add(1, 0);
        let is_first = {
            let mut gathered = self.gathered.borrow_mut();
            gathered.push(message);
            gathered.len() == 1
        };
        if is_first {
            self.changed.notify_all();
        }
    }

    /// Ends the queue behind what was pushed.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.changed.notify_all();
    }

    /// The task runs behind all that are ready when the first message is pushed, so what these push
    /// goes with it.
    async fn deliver(&self, context: &Context, delivery: Delivery) {
        let mut random = match delivery {
            Delivery::AtOnce => None,
            Delivery::Drawn(seed) => Some(SplitMix64::new(seed)),
        };
        loop {
            while self.gathered.borrow().is_empty() {
                if self.closed.get() {
                    self.outlet.0.change(|state| state.sender_gone = true);
                    return;
                }
                self.changed.wait().await;
            }
            if let Some(random) = &mut random {
                context.sleep_ns(random.below(LONGEST_DELAY_NS)).await;
            }
            let unsent = {
                let mut gathered = self.gathered.borrow_mut();
                let mut unsent = Vec::new();
                self.outlet.0.change(|state| match state.receiver_gone {
                    true => unsent = std::mem::take(&mut *gathered),
                    // The receiver leaves its emptied memory behind.
                    false if state.queue.is_empty() => std::mem::swap(&mut state.queue, &mut gathered),
                    false => state.queue.append(&mut gathered),
                });
                unsent
            };
            drop(unsent);
        }
    }
}

impl<T> Drop for Outlet<T> {
    fn drop(&mut self) {
        self.0.change(|state| state.sender_gone = true);
    }
}

impl<T> Inlet<T> {
    /// Exchanges `into`, which is empty, for the messages that have arrived, at least one. `false`:
    /// the sender has ended, and all that it sent was received.
    pub(crate) async fn receive(&self, into: &mut Vec<T>) -> bool {
        assert!(into.is_empty(), "earlier messages are handled first");
        poll_fn(|context| {
            let mut state = self.0.lock();
            if !state.queue.is_empty() {
                std::mem::swap(&mut state.queue, into);
                return Poll::Ready(true);
            }
            if state.sender_gone {
                return Poll::Ready(false);
            }
            state.waiting = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl<T> Drop for Inlet<T> {
    fn drop(&mut self) {
        let left = {
            let mut state = self.0.lock();
            state.receiver_gone = true;
            std::mem::take(&mut state.queue)
        };
        // Outside the lock: a message may answer when it is dropped.
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::yield_now;
    use crate::support::Executor;

    #[test]
    fn messages_of_a_turn_arrive_together_in_order() {
        let executor = Executor::new();
        let context = executor.context();
        let (outlet, inlet) = batches();
        let batch = outlet.open(&context, Delivery::AtOnce);
        let sender = context.spawn(async move {
            for round in 0..100 {
                (0..100).for_each(|number| batch.push(round * 100 + number));
                yield_now().await;
            }
            batch.close();
        });
        executor.block_on(async move {
            let (mut messages, mut expected) = (Vec::new(), 0);
            while inlet.receive(&mut messages).await {
                assert_eq!(messages.len() % 100, 0, "whole turns");
                for message in messages.drain(..) {
                    assert_eq!(message, expected);
                    expected += 1;
                }
            }
            assert_eq!(expected, 10_000);
            sender.await;
        });
    }

    #[test]
    fn messages_to_an_ended_receiver_are_dropped() {
        let executor = Executor::new();
        let (outlet, inlet) = batches();
        let batch = outlet.open(&executor.context(), Delivery::AtOnce);
        let counted = Rc::new(());
        batch.push(counted.clone());
        executor.run_ready();
        assert_eq!(Rc::strong_count(&counted), 2);
        drop(inlet);
        batch.push(counted.clone());
        executor.run_ready();
        assert_eq!(Rc::strong_count(&counted), 1);
    }

    /// Order of arrival of one message of each of two senders.
    fn first_of_two(seed: u64) -> usize {
        let executor = Executor::new();
        let context = executor.context();
        let order = Rc::new(RefCell::new(Vec::new()));
        for sender in 0..2 {
            let (outlet, inlet) = batches();
            outlet.open(&context, Delivery::Drawn(2 * seed + sender as u64)).push(());
            let order = order.clone();
            drop(context.spawn(async move {
                inlet.receive(&mut Vec::new()).await;
                order.borrow_mut().push(sender);
            }));
        }
        executor.run_until_idle();
        let order = order.borrow();
        order[0]
    }

    #[test]
    fn the_seed_decides_the_order_of_arrival() {
        let firsts: Vec<_> = (0..20).map(first_of_two).collect();
        assert!(firsts.contains(&0) && firsts.contains(&1), "{firsts:?}");
        assert_eq!(firsts, (0..20).map(first_of_two).collect::<Vec<_>>(), "again the same");
    }
}
