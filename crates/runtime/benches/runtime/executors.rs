//! Nanoseconds per task switch, wake, timer and start of a task, on both executors.

use std::rc::Rc;
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::time::Instant;

use stripewise_drive::{Channel, Context, yield_now};
use stripewise_runtime::{RealExecutor, VirtualExecutor};

const ROUNDS: usize = 7;

/// The median over the rounds of nanoseconds per each of `count` things that `work` does.
fn per_each(count: u64, mut work: impl FnMut()) -> (f64, f64, f64) {
    work();
    let rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            work();
            begin.elapsed().as_nanos() as f64 / count as f64
        })
        .collect();
    crate::spread(&rounds)
}

fn print(executor: &str, what: &str, (median, least, most): (f64, f64, f64)) {
    println!("  {executor:8} {what:42} {median:8.1} ns   ({least:.1} to {most:.1})");
}

async fn switches(context: Context, tasks: u64, each: u64) {
    let handles: Vec<_> = (0..tasks)
        .map(|_| {
            context.spawn(async move {
                for _ in 0..each {
                    yield_now().await;
                }
            })
        })
        .collect();
    for handle in handles {
        handle.await;
    }
}

async fn ping_pong(context: Context, count: u64) {
    let (there, back) = (Channel::new(1), Channel::new(1));
    let (their_there, their_back) = (there.clone(), back.clone());
    context.spawn(async move {
        while let Some(ball) = their_there.receive().await {
            let _ = their_back.send(ball).await;
        }
    });
    for ball in 0..count {
        let _ = there.send(ball).await;
        back.receive().await;
    }
    there.close();
}

async fn starts(context: Context, count: u64) {
    for index in 0..count {
        assert_eq!(context.spawn(async move { index }).await, index);
    }
}

async fn timers(context: Context, count: u64) {
    for _ in 0..count {
        // Set and taken back: what a time limit on a request costs.
        let sleep = std::pin::pin!(context.sleep_ns(1_000_000_000));
        let mut sleep = Some(sleep);
        std::future::poll_fn(|task| {
            let pending = sleep.as_mut().is_some_and(|sleep| sleep.as_mut().poll(task).is_pending());
            assert!(pending);
            Poll::Ready(())
        })
        .await;
    }
}

fn both(run: &impl Fn(&str, &Context, &dyn Fn(std::pin::Pin<Box<dyn Future<Output = ()>>>))) {
    let real = RealExecutor::new().expect("io_uring");
    run("real", &real.context(), &|future| real.block_on(future));
    let virtual_time = VirtualExecutor::new();
    run("virtual", &virtual_time.context(), &|future| virtual_time.block_on(future));
}

/// Prints the figures.
pub fn run() {
    println!("Executors: one thread, {ROUNDS} rounds, median (quartiles)");
    both(&|name, context, block_on| {
        let go = |count, make: &dyn Fn() -> std::pin::Pin<Box<dyn Future<Output = ()>>>| {
            per_each(count, || block_on(make()))
        };
        let context = || context.clone();
        print(
            name,
            "task switch (yield), 1 task",
            go(200_000, &|| Box::pin(switches(context(), 1, 200_000))),
        );
        print(
            name,
            "task switch (yield), 1,000 tasks",
            go(1_000_000, &|| Box::pin(switches(context(), 1_000, 1_000))),
        );
        print(
            name,
            "send, wake, receive and back (4 wakes)",
            go(100_000, &|| Box::pin(ping_pong(context(), 100_000))),
        );
        print(
            name,
            "start a task and await its result",
            go(100_000, &|| Box::pin(starts(context(), 100_000))),
        );
        print(name, "set a timer and take it back", go(200_000, &|| Box::pin(timers(context(), 200_000))));
    });
    from_another_thread();
}

/// From a wake on another thread to the poll it causes, the executor asleep.
fn from_another_thread() {
    const COUNT: u64 = 2_000;
    let executor = RealExecutor::new().expect("io_uring");
    let (to_waker, wakers) = mpsc::channel::<Waker>();
    let thread = std::thread::spawn(move || wakers.into_iter().for_each(Waker::wake));
    let to_waker = Rc::new(to_waker);
    let figures = per_each(COUNT, || {
        executor.block_on(async {
            for _ in 0..COUNT {
                let mut asked = false;
                std::future::poll_fn(|task| {
                    if std::mem::replace(&mut asked, true) {
                        return Poll::Ready(());
                    }
                    to_waker.send(task.waker().clone()).expect("the thread lives");
                    Poll::Pending
                })
                .await;
            }
        });
    });
    print("real", "to another thread and back", figures);
    drop(to_waker);
    thread.join().expect("ended");
}
