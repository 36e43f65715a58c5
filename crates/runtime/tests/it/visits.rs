//! Visits of an executor from other threads.

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle, ThreadId};

use stripewise_drive::{Context, Event, yield_now};
use stripewise_runtime::{Ended, RealExecutor, Visitor};

/// State of a visited thread.
#[derive(Default)]
struct Visited {
    /// Equal between two polls.
    pair: (Cell<u64>, Cell<u64>),
    asked_to_end: Cell<bool>,
    changed: Event,
}

thread_local! {
    static VISITED: Rc<Visited> = Rc::default();
}

/// A thread with an executor that runs this work, and a way to visit it.
fn visited<F: Future<Output = ()>>(
    work: impl FnOnce(Context, Rc<Visited>) -> F + Send + 'static,
) -> (Visitor, JoinHandle<()>) {
    let (started, visitor) = channel();
    let thread = thread::spawn(move || {
        let executor = RealExecutor::new().expect("io_uring");
        started.send(executor.visitor()).expect("awaited");
        executor.block_on(work(executor.context(), VISITED.with(Rc::clone)));
    });
    (visitor.recv().expect("it starts"), thread)
}

async fn until_asked_to_end(state: &Visited) {
    while !state.asked_to_end.get() {
        state.changed.wait().await;
    }
}

fn ask_to_end(visitor: &Visitor) {
    let ask = || {
        VISITED.with(|state| {
            state.asked_to_end.set(true);
            state.changed.notify_all();
        });
    };
    assert_eq!(visitor.visit(ask), Ok(()));
}

#[test]
fn a_parked_thread_is_visited() {
    let (visitor, thread) = visited(async |_, state| until_asked_to_end(&state).await);
    let mut borrowed = Vec::new();
    for number in 0..1000 {
        let here = thread::current().id();
        let seen = visitor.visit(|| {
            borrowed.push(number);
            (thread::current().id() != here, VISITED.with(|state| state.pair.0.replace(number + 1)))
        });
        assert_eq!(seen, Ok((true, number)));
    }
    assert_eq!(borrowed, (0..1000).collect::<Vec<u64>>());
    ask_to_end(&visitor);
    thread.join().expect("no panic");
}

#[test]
fn visits_come_between_two_polls() {
    let (visitor, thread) = visited(async |context, state| {
        for _ in 0..10 {
            let of_task = state.clone();
            context.spawn(async move {
                while !of_task.asked_to_end.get() {
                    let next = of_task.pair.0.get() + 1;
                    of_task.pair.0.set(next);
                    (0..50).for_each(|_| std::hint::spin_loop());
                    of_task.pair.1.set(next);
                    yield_now().await;
                }
            });
        }
        until_asked_to_end(&state).await;
    });
    let visitors: Vec<_> = (0..3)
        .map(|_| {
            let visitor = visitor.clone();
            thread::spawn(move || {
                let mut last = 0;
                for _ in 0..1000 {
                    let look = || VISITED.with(|state| (state.pair.0.get(), state.pair.1.get()));
                    let (first, second) = visitor.visit(look).expect("it runs");
                    assert!(first == second && first >= last, "{first} {second} {last}");
                    last = first;
                }
            })
        })
        .collect();
    visitors.into_iter().for_each(|visitor| visitor.join().expect("no panic"));
    ask_to_end(&visitor);
    thread.join().expect("no panic");
}

#[test]
fn a_panic_goes_to_the_visitor_alone() {
    let (visitor, thread) = visited(async |_, state| until_asked_to_end(&state).await);
    let panic = catch_unwind(AssertUnwindSafe(|| visitor.visit(|| -> u64 { panic!("seen there") })));
    let words = panic.expect_err("the closure panicked").downcast::<&str>().expect("its words");
    assert_eq!(*words, "seen there");
    assert_eq!(visitor.visit(|| 5), Ok(5), "the thread runs on");
    ask_to_end(&visitor);
    thread.join().expect("no panic");
}

#[test]
fn an_ended_thread_runs_no_visits() {
    let (visitor, thread) = visited(async |_, _| {});
    thread.join().expect("no panic");
    assert_eq!(visitor.visit(|| panic!("it is not run")), Err(Ended));
}

#[test]
fn visits_that_wait_end_with_the_thread() {
    let (visits, begun) = channel();
    let thread = thread::spawn(move || {
        let (begun, executor): (Receiver<()>, _) = (begun, RealExecutor::new().expect("io_uring"));
        let visitor = executor.visitor();
        let visitors: Vec<_> = (0..4)
            .map(|_| {
                let (visitor, visits) = (visitor.clone(), visits.clone());
                thread::spawn(move || {
                    visits.send(()).expect("awaited");
                    visitor.visit(|| panic!("the executor never runs"))
                })
            })
            .collect();
        (0..4).for_each(|_| begun.recv().expect("they start"));
        drop(executor);
        for visitor in visitors {
            assert_eq!(visitor.join().expect("no panic"), Err(Ended));
        }
    });
    thread.join().expect("no panic");
}

#[test]
fn visits_end_when_the_thread_panics() {
    let (visitor, thread) = visited(async |_, state| {
        until_asked_to_end(&state).await;
        panic!("the thread of a test panics");
    });
    ask_to_end(&visitor);
    while visitor.visit(|| ()).is_ok() {}
    thread.join().expect_err("it panicked");
}

#[test]
fn tasks_that_a_visit_wakes_run() {
    let (visitor, thread) = visited(async |_, state| {
        for number in 1..=100 {
            while state.pair.0.get() < number {
                state.changed.wait().await;
            }
            state.pair.1.set(number);
        }
        until_asked_to_end(&state).await;
    });
    let mut answered = 0;
    for number in 1..=100 {
        let wake = || {
            VISITED.with(|state| {
                state.pair.0.set(number);
                state.changed.notify_all();
            });
        };
        visitor.visit(wake).expect("it runs");
        while answered < number {
            let look = || VISITED.with(|state| state.pair.1.get());
            answered = visitor.visit(look).expect("it runs");
        }
    }
    ask_to_end(&visitor);
    thread.join().expect("no panic");
}

#[test]
#[should_panic(expected = "a thread that can be visited visits none")]
fn a_visited_thread_visits_none() {
    let (visitor, _thread) = visited(async |_, state| until_asked_to_end(&state).await);
    let executor = RealExecutor::new().expect("io_uring");
    drop(executor.visitor());
    let _ = visitor.visit(|| ());
}

#[test]
fn threads_of_an_executor_end_with_it() {
    struct Entered(Sender<ThreadId>);

    impl Drop for Entered {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).expect("awaited");
        }
    }

    let (left, leaving) = channel();
    let executor = RealExecutor::new().expect("io_uring");
    assert!(executor.context().shards().is_empty());
    executor.start_shards(3, move |_| Entered(left.clone())).expect("threads");
    let shards = executor.context().shards();
    let mut ids: Vec<ThreadId> = Vec::new();
    for shard in &shards {
        assert!(shard.visit(&mut || ids.push(thread::current().id())));
    }
    assert!(ids.len() == 3 && !ids.contains(&thread::current().id()));
    drop(executor);
    let mut ended: Vec<ThreadId> = leaving.iter().collect();
    ids.sort_by_key(|id| format!("{id:?}"));
    ended.sort_by_key(|id| format!("{id:?}"));
    assert_eq!(ids, ended, "each on its own thread");
    assert!(shards.iter().all(|shard| !shard.visit(&mut || unreachable!("it has ended"))));
}
