//! Timing shared by simulated and paced drives: exact rates, and a queue that releases items at
//! their due time.
//!
//! One task per drive waits for the earliest item, instead of one per request, so steady load
//! allocates nothing. Timers may fire late (a busy machine); items are then released late but in
//! order.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use crate::completion::Completion;
use crate::context::Context;
use crate::error::IoResult;
use crate::wait::Event;

/// Nanoseconds in a second.
pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// Converts units to whole nanoseconds without drift: the remainder of one request is added to the
/// next.
pub(crate) struct Rate {
    units_per_second: u64,
    /// Remainder in units of 1 / `units_per_second` nanoseconds.
    carry: u64,
}

impl Rate {
    pub(crate) fn new(units_per_second: u64) -> Self {
        assert!(units_per_second > 0, "a rate is above zero");
        Self { units_per_second, carry: 0 }
    }

    /// Time that `units` take at this rate, in nanoseconds.
    pub(crate) fn cost_ns(&mut self, units: u64) -> u64 {
        let whole = u128::from(units) * u128::from(SECOND_NS) + u128::from(self.carry);
        self.carry = (whole % u128::from(self.units_per_second)) as u64;
        u64::try_from(whole / u128::from(self.units_per_second)).unwrap_or(u64::MAX)
    }
}

struct Item<T> {
    /// Due time, and rank among items of the same time.
    order: (u64, u64),
    item: T,
}

impl<T> PartialEq for Item<T> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl<T> Eq for Item<T> {}

impl<T> PartialOrd for Item<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Item<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order.cmp(&other.order)
    }
}

struct Shared<T> {
    heap: RefCell<BinaryHeap<Reverse<Item<T>>>>,
    next_sequence: Cell<u64>,
    /// The earliest item changed, or the last handle was dropped.
    changed: Event,
    handles: Cell<usize>,
}

/// Passes each item to the function given at the start, at the item's due time. The task behind it
/// ends when all handles are gone and all items are released.
pub(crate) struct DelayQueue<T: 'static>(Rc<Shared<T>>);

impl<T> Clone for DelayQueue<T> {
    fn clone(&self) -> Self {
        self.0.handles.set(self.0.handles.get() + 1);
        Self(self.0.clone())
    }
}

impl<T> Drop for DelayQueue<T> {
    fn drop(&mut self) {
        self.0.handles.set(self.0.handles.get() - 1);
        if self.0.handles.get() == 0 {
            self.0.changed.notify_all();
        }
    }
}

impl<T> DelayQueue<T> {
    /// Starts the task that passes every item to `due` in time. `due` gets a handle to add items.
    pub(crate) fn start(context: &Context, due: impl FnMut(&Self, T) + 'static) -> Self {
        let shared = Rc::new(Shared {
            heap: RefCell::new(BinaryHeap::new()),
            next_sequence: Cell::new(0),
            changed: Event::new(),
            handles: Cell::new(1),
        });
        context.spawn(Self::run(context.clone(), shared.clone(), due));
        Self(shared)
    }

    /// Adds an item due at `due_ns`, after those added earlier for the same time.
    pub(crate) fn push(&self, due_ns: u64, item: T) {
        let sequence = self.0.next_sequence.replace(self.0.next_sequence.get() + 1);
        let earlier = self.0.earliest_ns().is_none_or(|earliest_ns| due_ns < earliest_ns);
        self.0.heap.borrow_mut().push(Reverse(Item { order: (due_ns, sequence), item }));
        if earlier {
            self.0.changed.notify_all();
        }
    }

    async fn run(context: Context, shared: Rc<Shared<T>>, mut due: impl FnMut(&Self, T)) {
        loop {
            while let Some(item) = shared.pop_due(context.now_ns()) {
                shared.handles.set(shared.handles.get() + 1);
                due(&Self(shared.clone()), item);
            }
            let earliest_ns = shared.earliest_ns();
            if earliest_ns.is_none() && shared.handles.get() == 0 {
                return;
            }
            let mut changed = pin!(shared.changed.wait());
            let mut sleep = earliest_ns.map(|due_ns| context.sleep_until_ns(due_ns));
            std::future::poll_fn(|task| {
                let slept = sleep.as_mut().is_some_and(|sleep| Pin::new(sleep).poll(task).is_ready());
                if slept || changed.as_mut().poll(task).is_ready() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    }
}

impl<T> Shared<T> {
    fn earliest_ns(&self) -> Option<u64> {
        self.heap.borrow().peek().map(|Reverse(item)| item.order.0)
    }

    fn pop_due(&self, now_ns: u64) -> Option<T> {
        let mut heap = self.heap.borrow_mut();
        if heap.peek()?.0.order.0 > now_ns {
            return None;
        }
        heap.pop().map(|Reverse(item)| item.item)
    }
}

/// Calls `then` with the answer: now if it is available, else from a separate task.
pub(crate) fn when_answered(context: &Context, answer: Completion, then: impl FnOnce(IoResult) + 'static) {
    match answer.try_take() {
        Ok(result) => then(result),
        Err(answer) => drop(context.spawn(async move { then(answer.await) })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::Executor;

    #[test]
    fn rates_do_not_drift() {
        let mut rate = Rate::new(3_000_000_000);
        let total: u64 = (0..3_000_000).map(|_| rate.cost_ns(4096)).sum();
        assert_eq!(total, 4_096_000_000);
        assert_eq!(Rate::new(1).cost_ns(u64::MAX), u64::MAX, "no overflow");
    }

    #[test]
    fn items_are_on_time_and_last_handle_ends_the_task() {
        let executor = Executor::new();
        let context = executor.context();
        let seen = Rc::new(RefCell::new(Vec::new()));
        let (theirs, clock) = (seen.clone(), context.clone());
        let queue = DelayQueue::start(&context, move |queue: &DelayQueue<u64>, item| {
            theirs.borrow_mut().push((clock.now_ns(), item));
            if item == 20 {
                queue.push(25, 100);
            }
        });
        executor.run_ready();
        for due_ns in [30, 20, 10, 20, 0] {
            queue.push(due_ns, due_ns);
        }
        executor.run_until_idle();
        assert_eq!(*seen.borrow(), [(0, 0), (10, 10), (20, 20), (20, 20), (25, 100), (25, 100), (30, 30)]);
        assert_eq!(executor.tasks(), 1);
        queue.push(50, 50);
        drop(queue);
        executor.run_until_idle();
        assert_eq!(seen.borrow().last(), Some(&(50, 50)), "queued items are still released");
        assert_eq!(executor.tasks(), 0);
    }

    #[test]
    fn an_earlier_item_shortens_the_wait() {
        let executor = Executor::new();
        let context = executor.context();
        let seen = Rc::new(RefCell::new(Vec::new()));
        let (theirs, clock) = (seen.clone(), context.clone());
        let queue = DelayQueue::start(&context, move |_, ()| theirs.borrow_mut().push(clock.now_ns()));
        queue.push(100, ());
        executor.run_ready();
        queue.push(40, ());
        executor.run_until_idle();
        assert_eq!(*seen.borrow(), [40, 100]);
    }
}
