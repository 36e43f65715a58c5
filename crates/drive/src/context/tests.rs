//! Sleeping, time limits and tasks, in the virtual time of the test executor.

use std::cell::Cell;
use std::future::pending;

use super::*;
use crate::support::Executor;

#[test]
fn sleeps_end_in_order_and_on_time() {
    let executor = Executor::new();
    let context = executor.context();
    let order = Rc::new(RefCell::new(Vec::new()));
    for duration_ns in [30, 10, 20, 10] {
        let (context, order) = (context.clone(), order.clone());
        let sleep = context.sleep_ns(duration_ns);
        executor.context().spawn(async move {
            sleep.await;
            order.borrow_mut().push((context.now_ns(), duration_ns));
        });
    }
    executor.run_until_idle();
    assert_eq!(*order.borrow(), [(10, 10), (10, 10), (20, 20), (30, 30)]);
    let again = context.clone();
    executor.block_on(async move { again.sleep_until_ns(5).await });
    assert_eq!(context.now_ns(), 30, "a deadline in the past ends at once");
    let mut forever = context.sleep_ns(u64::MAX);
    assert!(Pin::new(&mut forever).poll(&mut TaskContext::from_waker(Waker::noop())).is_pending());
}

#[test]
fn a_sleep_takes_its_timer_back() {
    let executor = Executor::new();
    let mut sleep = executor.context().sleep_ns(100);
    for _ in 0..3 {
        assert!(Pin::new(&mut sleep).poll(&mut TaskContext::from_waker(Waker::noop())).is_pending());
        assert_eq!(executor.timers(), 1);
    }
    drop(sleep);
    assert_eq!(executor.timers(), 0);
}

#[test]
fn time_limit_ends_only_overlong_work() {
    let executor = Executor::new();
    let context = executor.context();
    let inside = context.clone();
    let results = executor.block_on(async move {
        let slow = inside.time_limit_ns(100, pending::<()>()).await;
        let stopped_at = inside.now_ns();
        let fast = inside.time_limit_ns(100, inside.sleep_ns(99)).await;
        let tie = inside.time_limit_ns(100, inside.sleep_ns(100)).await;
        (slow, stopped_at, fast, tie)
    });
    assert_eq!(results, (Err(TimedOut), 100, Ok(()), Ok(())));
    assert_eq!(executor.timers(), 0);
}

#[test]
fn a_task_gives_its_result_and_outlives_its_handle() {
    let executor = Executor::new();
    let context = executor.context();
    let inside = context.clone();
    let handle = context.spawn(async move {
        inside.sleep_ns(10).await;
        7
    });
    executor.run_ready();
    assert!(!handle.is_finished());
    assert_eq!(executor.block_on(handle), 7);

    let done = Rc::new(Cell::new(false));
    let (inside, theirs) = (context.clone(), done.clone());
    drop(context.spawn(async move {
        inside.sleep_ns(10).await;
        theirs.set(true);
    }));
    executor.run_until_idle();
    assert!(done.get());
}

#[test]
fn yielding_lets_others_run_once() {
    let executor = Executor::new();
    let context = executor.context();
    let log = Rc::new(RefCell::new(String::new()));
    for name in ['a', 'b'] {
        let log = log.clone();
        context.spawn(async move {
            for _ in 0..3 {
                log.borrow_mut().push(name);
                yield_now().await;
            }
        });
    }
    executor.run_ready();
    assert_eq!(*log.borrow(), "ababab");
}
