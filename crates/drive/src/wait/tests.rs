//! Fairness, cancel safety and bounded memory of what tasks wait on.

use std::cell::RefCell;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};

use super::*;
use crate::support::{CountingWaker, Executor};

type Boxed<T> = Pin<Box<dyn Future<Output = T>>>;

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut TaskContext::from_waker(Waker::noop()))
}

fn acquire(semaphore: &Semaphore, amount: u64) -> Boxed<SemaphorePermit> {
    let semaphore = semaphore.clone();
    Box::pin(async move { semaphore.acquire(amount).await })
}

fn granted(future: &mut Boxed<SemaphorePermit>) -> Option<SemaphorePermit> {
    match poll(future.as_mut()) {
        Poll::Ready(permit) => Some(permit),
        Poll::Pending => None,
    }
}

#[test]
fn event_wakes_only_earlier_waiters() {
    let event = Event::new();
    let mut early = pin!(event.wait());
    event.notify_all();
    let mut late = pin!(event.wait());
    assert!(poll(early.as_mut()).is_ready(), "counts from the call, not from the first poll");
    assert!(poll(late.as_mut()).is_pending());
    event.notify_all();
    assert!(poll(late).is_ready());
}

#[test]
fn repeated_event_waits_leave_no_entry() {
    let event = Event::new();
    {
        let mut first = pin!(event.wait());
        let mut second = pin!(event.wait());
        for _ in 0..10 {
            assert!(poll(first.as_mut()).is_pending());
            assert!(poll(second.as_mut()).is_pending());
        }
        assert_eq!(event.waiting.borrow().len(), 2);
    }
    assert_eq!(event.waiting.borrow().len(), 0, "given up waits must not pile up");
}

#[test]
fn an_event_wakes_the_latest_waker_of_each_once() {
    let event = Event::new();
    let (old, new) = (CountingWaker::new(), CountingWaker::new());
    let mut wait = pin!(event.wait());
    let _ = wait.as_mut().poll(&mut TaskContext::from_waker(&old.clone().into()));
    let _ = wait.as_mut().poll(&mut TaskContext::from_waker(&new.clone().into()));
    event.notify_all();
    event.notify_all();
    assert_eq!((old.count(), new.count()), (0, 1));
}

#[test]
fn a_semaphore_serves_in_order_and_no_one_overtakes() {
    let semaphore = Semaphore::new(4);
    let held = semaphore.try_acquire(3).expect("free");
    let (mut large, mut small) = (acquire(&semaphore, 3), acquire(&semaphore, 1));
    assert!(granted(&mut large).is_none());
    assert!(granted(&mut small).is_none(), "one unit is free, but the large one came first");
    assert!(semaphore.try_acquire(1).is_none(), "nor does trying overtake");
    drop(held);
    let large = granted(&mut large).expect("its turn");
    let small = granted(&mut small).expect("fits beside");
    assert_eq!(semaphore.available(), 0);
    drop((large, small));
    assert_eq!(semaphore.available(), 4);
}

#[test]
fn more_than_the_limit_waits_for_all_of_it() {
    let semaphore = Semaphore::new(4);
    let held = semaphore.try_acquire(1).expect("free");
    let mut all = acquire(&semaphore, 100);
    assert!(granted(&mut all).is_none());
    drop(held);
    let all = granted(&mut all).expect("everything is free");
    assert_eq!(semaphore.available(), 0);
    drop(all);
    assert_eq!(semaphore.available(), 4);
}

#[test]
fn cancelled_wait_lets_later_waiters_proceed() {
    let semaphore = Semaphore::new(4);
    let held = semaphore.try_acquire(2).expect("free");
    let (mut large, mut small) = (acquire(&semaphore, 4), acquire(&semaphore, 2));
    let waker = CountingWaker::new();
    assert!(granted(&mut large).is_none());
    assert!(small.as_mut().poll(&mut TaskContext::from_waker(&waker.clone().into())).is_pending());
    drop(large);
    assert_eq!(waker.count(), 1, "woken although nothing was given back");
    let small = granted(&mut small).expect("fits now");
    drop((small, held));
    assert_eq!(semaphore.available(), 4);
}

#[test]
fn giving_up_after_the_grant_returns_the_units() {
    let semaphore = Semaphore::new(2);
    let held = semaphore.try_acquire(2).expect("free");
    let (mut first, mut second) = (acquire(&semaphore, 2), acquire(&semaphore, 2));
    assert!(granted(&mut first).is_none());
    assert!(granted(&mut second).is_none());
    drop(held); // granted to the first, which is dropped before it sees that
    drop(first);
    drop(granted(&mut second).expect("passed on"));
    assert_eq!(semaphore.available(), 2);
}

#[test]
fn random_use_of_a_semaphore_never_loses_units() {
    let semaphore = Semaphore::new(7);
    let (mut waiting, mut held) = (Vec::new(), Vec::new());
    let mut random = crate::random::SplitMix64::new(5);
    for _ in 0..10_000 {
        match random.below(4) {
            0 if waiting.len() < 20 => waiting.push(acquire(&semaphore, random.below(9))),
            1 if !waiting.is_empty() => drop(waiting.remove(random.below(waiting.len() as u64) as usize)),
            2 if !held.is_empty() => drop(held.swap_remove(random.below(held.len() as u64) as usize)),
            _ => waiting.retain_mut(|future| match granted(future) {
                Some(permit) => {
                    held.push(permit);
                    false
                }
                None => true,
            }),
        }
        let in_use: u64 = held.iter().map(|permit| permit.amount).sum();
        assert!(in_use + semaphore.available() <= 7);
    }
    drop(waiting);
    drop(held);
    assert_eq!(semaphore.available(), 7);
    assert!(semaphore.shared.queue.borrow().is_empty());
}

#[test]
fn channel_keeps_order_of_items_and_waiters() {
    let executor = Executor::new();
    let context = executor.context();
    let channel = Channel::new(2);
    let seen = Rc::new(RefCell::new(Vec::new()));
    for sender in 0..5 {
        let channel = channel.clone();
        context.spawn(async move {
            for item in 0..3 {
                channel.send((sender, item)).await.expect("open");
            }
        });
    }
    for receiver in 0..3 {
        let (channel, seen) = (channel.clone(), seen.clone());
        context.spawn(async move {
            while let Some(item) = channel.receive().await {
                seen.borrow_mut().push((receiver, item));
            }
        });
    }
    executor.run_until_idle();
    channel.close();
    executor.run_until_idle();
    assert_eq!(executor.tasks(), 0, "everyone came to an end");
    let seen = seen.borrow();
    assert_eq!(seen.len(), 15);
    // The first finds room at once and is done before the others begin to wait; these then take
    // turns.
    let senders: Vec<_> = seen.iter().map(|(_, (sender, _))| *sender).collect();
    assert_eq!(senders, [0, 0, 0, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4]);
    assert!((0..5).all(|who| seen.iter().filter(|(_, item)| item.0 == who).map(|(_, item)| item.1).eq(0..3)));
    for receiver in 0..3 {
        let share = seen.iter().filter(|(who, _)| *who == receiver).count();
        assert!(share >= 3, "receiver {receiver} got {share} of 15: {seen:?}");
    }
}

#[test]
fn a_channel_is_bounded_and_cancel_safe() {
    let channel = Channel::new(1);
    assert!(poll(pin!(channel.send(1))).is_ready());
    {
        let mut full = pin!(channel.send(2));
        assert!(poll(full.as_mut()).is_pending());
        assert_eq!(poll(pin!(channel.receive())), Poll::Ready(Some(1)));
        // Dropped after it was promised the room: the room must not be lost.
    }
    assert!(poll(pin!(channel.send(3))).is_ready());
    assert_eq!(poll(pin!(channel.receive())), Poll::Ready(Some(3)));
    {
        let mut receiver = pin!(channel.receive());
        assert!(poll(receiver.as_mut()).is_pending());
        assert!(poll(pin!(channel.send(4))).is_ready());
        // Dropped after it was promised the item: the item must not be lost.
    }
    assert_eq!(poll(pin!(channel.receive())), Poll::Ready(Some(4)));
}

#[test]
fn closing_a_channel_wakes_waiters_and_keeps_items() {
    let channel = Channel::new(1);
    assert!(poll(pin!(channel.send(1))).is_ready());
    let mut waiting = pin!(channel.send(2));
    assert!(poll(waiting.as_mut()).is_pending());
    channel.close();
    channel.close();
    assert_eq!(poll(waiting), Poll::Ready(Err(2)));
    assert_eq!(poll(pin!(channel.send(3))), Poll::Ready(Err(3)));
    assert_eq!(poll(pin!(channel.receive())), Poll::Ready(Some(1)));
    for _ in 0..3 {
        assert_eq!(poll(pin!(channel.receive())), Poll::Ready(None));
    }
    let empty = Channel::<u8>::new(1);
    let mut receiver = pin!(empty.receive());
    assert!(poll(receiver.as_mut()).is_pending());
    empty.close();
    assert_eq!(poll(receiver), Poll::Ready(None));
}
