//! The virtual executor from outside: its clock, its order, its end.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::Poll;

use stripewise_drive::{Channel, Context, Event, Semaphore, TimedOut, yield_now};
use stripewise_runtime::VirtualExecutor;

fn panic_text(work: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(work)).expect_err("must panic");
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().expect("a panic message")).to_owned(),
    }
}

#[test]
fn the_clock_jumps_to_the_next_timer_and_no_further() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let ends = Rc::new(RefCell::new(Vec::new()));
    for hours in [3_u64, 1, 2] {
        let (context, ends) = (context.clone(), ends.clone());
        executor.context().spawn(async move {
            context.sleep_ns(hours * 3_600_000_000_000).await;
            ends.borrow_mut().push((hours, context.now_ns()));
        });
    }
    executor.block_on(context.sleep_ns(2 * 3_600_000_000_000));
    assert_eq!(*ends.borrow(), [(1, 3_600_000_000_000), (2, 7_200_000_000_000)]);
    assert_eq!(executor.tasks_alive(), 1, "the third task still sleeps");
    executor.block_on(context.sleep_until_ns(u64::MAX - 1));
    assert_eq!(ends.borrow().len(), 3);
    assert_eq!(executor.now_ns(), u64::MAX - 1);
}

/// A mix of everything that makes tasks wait; returns what happened when.
fn busy_run(executor: &VirtualExecutor) -> Vec<(u64, u32, u32)> {
    async fn worker(
        context: Context,
        id: u32,
        gate: Semaphore,
        channel: Channel<u32>,
        log: Rc<RefCell<Vec<(u64, u32, u32)>>>,
    ) {
        for step in 0..20 {
            let _permit = gate.acquire(1 + u64::from(id % 2)).await;
            context.sleep_ns(u64::from((id * 7 + step * 13) % 5)).await;
            log.borrow_mut().push((context.now_ns(), id, step));
            channel.send(id).await.expect("open");
            yield_now().await;
        }
    }
    let context = executor.context();
    let log = Rc::new(RefCell::new(Vec::new()));
    let (gate, channel) = (Semaphore::new(3), Channel::new(2));
    for id in 0..8 {
        context.spawn(worker(context.clone(), id, gate.clone(), channel.clone(), log.clone()));
    }
    executor.block_on(async {
        for _ in 0..160 {
            channel.receive().await.expect("open");
        }
    });
    log.take()
}

#[test]
fn runs_repeat_exactly_and_seeds_change_the_order() {
    let first = busy_run(&VirtualExecutor::new());
    assert_eq!(first.len(), 160);
    assert_eq!(first, busy_run(&VirtualExecutor::new()));
    let by_seed: Vec<_> = (0..6).map(|seed| busy_run(&VirtualExecutor::shuffled(seed))).collect();
    for (seed, log) in by_seed.iter().enumerate() {
        assert_eq!(*log, busy_run(&VirtualExecutor::shuffled(seed as u64)), "seed {seed}");
        assert_eq!(log.len(), 160);
    }
    assert!(by_seed.iter().any(|log| *log != first), "no seed tried another order");
}

#[test]
fn a_dropped_sleep_leaves_no_timer() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let quick = Box::pin(context.sleep_ns(10));
    assert_eq!(executor.block_on(context.time_limit_ns(1_000, quick)), Ok(()));
    let slow = Box::pin(context.sleep_ns(5_000));
    assert_eq!(executor.block_on(context.time_limit_ns(100, slow)), Err(TimedOut));
    assert_eq!(executor.now_ns(), 110);
    let text = panic_text(|| executor.block_on(std::future::pending()));
    assert!(text.contains("at 110 ns"), "a timer taken back still moved the clock: {text}");
}

#[test]
fn waiting_for_nothing_is_named_a_deadlock() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let never = Rc::new(Event::new());
    for _ in 0..3 {
        let never = never.clone();
        context.spawn(async move { never.wait().await });
    }
    let text = panic_text(|| executor.block_on(never.wait()));
    assert!(text.contains("deadlock in virtual time"), "{text}");
    assert!(text.contains("3 tasks wait"), "{text}");
    // The panic leaves the executor usable, so that a test can look around afterwards.
    never.notify_all();
    executor.block_on(yield_now());
    assert_eq!(executor.tasks_alive(), 0);
}

#[test]
fn a_loop_at_one_instant_exceeds_its_limit() {
    let loops = |naps_ns: u64| {
        let executor = VirtualExecutor::new();
        executor.limit_polls(100);
        let context = executor.context();
        let again = context.clone();
        executor.block_on(context.spawn(async move {
            for _ in 0..30 {
                for _ in 0..10 {
                    yield_now().await;
                }
                if naps_ns > 0 {
                    again.sleep_ns(naps_ns).await;
                }
            }
        }));
    };
    loops(1);
    let text = panic_text(|| loops(0));
    assert!(text.contains("101 polls of tasks without the clock moving"), "{text}");
}

#[test]
fn a_long_turn_exceeds_its_limit() {
    let works = |most_ns: u64| {
        let executor = VirtualExecutor::new();
        executor.limit_turn_ns(most_ns);
        let context = executor.context();
        executor.block_on(context.spawn(async move {
            for step in 0..20_000_000 {
                std::hint::black_box(step);
            }
        }));
    };
    works(60_000_000_000);
    let text = panic_text(|| works(1_000_000));
    assert!(text.contains("ms of the processor"), "{text}");
}

#[test]
fn many_wakes_are_one_poll() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let polls = Rc::new(Cell::new(0));
    let waker = Rc::new(RefCell::new(None));
    let (their_polls, their_waker) = (polls.clone(), waker.clone());
    context.spawn(std::future::poll_fn(move |task| {
        their_polls.set(their_polls.get() + 1);
        *their_waker.borrow_mut() = Some(task.waker().clone());
        Poll::<()>::Pending
    }));
    executor.block_on(yield_now());
    assert_eq!(polls.get(), 1);
    executor.block_on(async {
        for _ in 0..5 {
            waker.borrow().as_ref().expect("polled").wake_by_ref();
        }
        yield_now().await;
    });
    assert_eq!(polls.get(), 2);
    // From outside any turn, by the slow path; still one poll.
    (0..5).for_each(|_| waker.borrow().as_ref().expect("polled").wake_by_ref());
    executor.block_on(context.sleep_ns(1));
    assert_eq!(polls.get(), 3);
}

#[test]
fn dropping_the_executor_drops_tasks_and_their_data() {
    struct SpawnsWhenDropped(Context, Rc<()>);
    impl Drop for SpawnsWhenDropped {
        fn drop(&mut self) {
            let kept = self.1.clone();
            self.0.spawn(async move {
                std::future::pending::<()>().await;
                drop(kept);
            });
        }
    }
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let alive = Rc::new(());
    for delay_ns in 0..10 {
        // Each task holds the executor's context (a cycle) and starts another task from its
        // destructor.
        let held = SpawnsWhenDropped(context.clone(), alive.clone());
        let context_inside = context.clone();
        context.spawn(async move {
            let _held = held;
            context_inside.sleep_ns(1_000 + delay_ns).await;
        });
    }
    executor.block_on(context.sleep_ns(10));
    assert_eq!(Rc::strong_count(&alive), 11);
    drop(executor);
    assert_eq!(Rc::strong_count(&alive), 1);
    let late = alive.clone();
    context.spawn(async move { drop(late) });
    assert_eq!(Rc::strong_count(&alive), 1, "a task started on a dropped executor is dropped");
    assert_eq!(context.now_ns(), 10);
}

#[test]
fn reused_task_slots_ignore_old_wakers() {
    let executor = VirtualExecutor::new();
    let context = executor.context();
    let old_waker = Rc::new(RefCell::new(None));
    let theirs = old_waker.clone();
    executor.block_on(context.spawn(std::future::poll_fn(move |task| {
        *theirs.borrow_mut() = Some(task.waker().clone());
        Poll::Ready(())
    })));
    let polls = Rc::new(Cell::new(0));
    let counted = polls.clone();
    context.spawn(std::future::poll_fn(move |_| {
        counted.set(counted.get() + 1);
        Poll::<()>::Pending
    }));
    executor.block_on(async {
        yield_now().await;
        old_waker.borrow().as_ref().expect("polled").wake_by_ref();
        yield_now().await;
    });
    assert_eq!(polls.get(), 1, "the waker of the ended task woke its successor");
}

#[test]
fn executors_nest_without_stealing_wakes() {
    let outer = VirtualExecutor::new();
    let context = outer.context();
    let result = outer.block_on(async {
        let event = Rc::new(Event::new());
        let theirs = event.clone();
        let waiting = context.spawn(async move { theirs.wait().await });
        yield_now().await;
        let inner = VirtualExecutor::new();
        let inner_ns = inner.block_on(async {
            // Wakes a task of the outer executor while the inner one has the turn.
            event.notify_all();
            inner.context().sleep_ns(7).await;
            inner.now_ns()
        });
        waiting.await;
        inner_ns
    });
    assert_eq!(result, 7);
    assert_eq!(outer.now_ns(), 0);
}

#[test]
fn block_on_inside_itself_is_refused() {
    let executor = Rc::new(VirtualExecutor::new());
    let again = executor.clone();
    let text = panic_text(|| executor.block_on(async move { again.block_on(yield_now()) }));
    assert!(text.contains("within a task of the same executor"), "{text}");
    executor.block_on(yield_now());
}
