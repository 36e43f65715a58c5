//! The real executor: clock, wakes from other threads, signals.

use crate::kit;
use std::cell::{Cell, RefCell};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use crate::kit::{disk_directory, open_new, other_process, path_of_this_other_process};
use stripewise_drive::{Buffer, Drive, IoRequest, TimedOut, yield_now};
use stripewise_runtime::{RealExecutor, interrupt_requested};

#[test]
fn sleeps_end_in_order_and_never_early() {
    let executor = RealExecutor::new().expect("io_uring");
    let context = executor.context();
    let ends = Rc::new(RefCell::new(Vec::new()));
    let begin = Instant::now();
    for milliseconds in [30_u64, 10, 20, 0] {
        let (context, ends) = (context.clone(), ends.clone());
        executor.context().spawn(async move {
            let wanted_ns = context.now_ns() + milliseconds * 1_000_000;
            context.sleep_until_ns(wanted_ns).await;
            assert!(context.now_ns() >= wanted_ns);
            ends.borrow_mut().push(milliseconds);
        });
    }
    executor.block_on(context.sleep_ns(40_000_000));
    assert_eq!(*ends.borrow(), [0, 10, 20, 30]);
    assert!(begin.elapsed() >= Duration::from_millis(40));
    assert_eq!(executor.tasks_alive(), 0);
    let never = std::future::pending::<()>();
    assert_eq!(executor.block_on(context.time_limit_ns(1_000_000, never)), Err(TimedOut));
}

/// Counts up from other threads; the future ends at `goal`.
#[derive(Default)]
struct Counter {
    count: AtomicU32,
    waker: Mutex<Option<Waker>>,
}

impl Counter {
    fn raise(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if let Some(waker) = self.waker.lock().expect("not poisoned").take() {
            waker.wake();
        }
    }

    async fn reached(&self, goal: u32) {
        std::future::poll_fn(|task| {
            *self.waker.lock().expect("not poisoned") = Some(task.waker().clone());
            if self.count.load(Ordering::SeqCst) >= goal { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

#[test]
fn other_threads_wake_a_sleeping_and_a_busy_executor() {
    let executor = RealExecutor::new().expect("io_uring");
    let counter = Arc::new(Counter::default());
    let theirs = counter.clone();
    let sleeper = std::thread::spawn(move || {
        // One at a time, each while the executor sleeps.
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(2));
            theirs.raise();
        }
    });
    let limited = executor.context().time_limit_ns(10_000_000_000, Box::pin(counter.reached(20)));
    assert_eq!(executor.block_on(limited), Ok(()), "a sleeping executor was not woken");
    sleeper.join().expect("ended");

    let threads: Vec<_> = (0..4)
        .map(|_| {
            let counter = counter.clone();
            std::thread::spawn(move || (0..20_000).for_each(|_| counter.raise()))
        })
        .collect();
    executor.block_on(async {
        for goal in (20..=80_020).step_by(1_000) {
            counter.reached(goal).await;
            yield_now().await;
        }
    });
    threads.into_iter().for_each(|thread| thread.join().expect("ended"));
}

#[test]
fn a_busy_task_delays_neither_drives_nor_timers() {
    let directory = disk_directory();
    let executor = RealExecutor::new().expect("io_uring");
    let drive = open_new(&executor, directory.path(), 1 << 20);
    let context = executor.context();
    let stop = Rc::new(Cell::new(false));
    let theirs = stop.clone();
    let spinner = context.spawn(async move {
        let mut turns = 0_u64;
        while !theirs.get() {
            yield_now().await;
            turns += 1;
        }
        turns
    });
    executor.block_on(async {
        let begin = Instant::now();
        for _ in 0..20 {
            let request = IoRequest::write(4096, Buffer::from_bytes(&[1; 4096]), true);
            drive.submit(request).await.expect("written");
        }
        context.sleep_ns(5_000_000).await;
        assert!(begin.elapsed() < Duration::from_secs(10), "starved for {:?}", begin.elapsed());
        stop.set(true);
        assert!(spinner.await > 1_000);
    });
}

#[test]
fn tasks_left_running_continue_in_the_next_block_on() {
    let directory = disk_directory();
    let executor = RealExecutor::new().expect("io_uring");
    let drive = open_new(&executor, directory.path(), 1 << 20);
    let context = executor.context();
    let (done, drive_of_task, context_of_task) = (Rc::new(Cell::new(false)), drive.clone(), context.clone());
    let theirs = done.clone();
    context.spawn(async move {
        let held = Rc::new(drive_of_task);
        for offset in [0, 4096, 8192] {
            held.submit(IoRequest::write(offset, Buffer::from_bytes(&[5; 4096]), false))
                .await
                .expect("written");
            context_of_task.sleep_ns(1_000_000).await;
        }
        theirs.set(true);
    });
    executor.block_on(yield_now());
    assert!(!done.get());
    executor.block_on(async {
        while !done.get() {
            context.sleep_ns(1_000_000).await;
        }
    });
    assert_eq!(kit::read(&executor, &*drive, 8192, 4096).expect("read"), vec![5; 4096]);
}

#[test]
fn executors_on_many_threads_are_independent() {
    let directory = disk_directory();
    let threads: Vec<_> = (0..4)
        .map(|index| {
            let path = kit::make(directory.path(), &format!("drive{index}"), 1 << 20);
            std::thread::spawn(move || {
                let executor = RealExecutor::new().expect("io_uring");
                let drive = executor.open_drive(&path, &Default::default()).expect("opens");
                for round in 0..20_u64 {
                    let bytes = kit::contents(index * 100 + round, 64 << 10);
                    kit::write(&executor, &*drive, round * 4096, &bytes, false).expect("written");
                    assert!(kit::read(&executor, &*drive, round * 4096, bytes.len()).expect("read") == bytes);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("ended"));
}

fn start_interruptible(name: &str, directory: &std::path::Path) -> Child {
    let path = directory.join(name);
    let child = other_process(&format!("real_time::{name}"), &path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    kit::wait_until("the other process is ready", || path.exists());
    child
}

fn signal(child: &Child, signal: libc::c_int) {
    // SAFETY: sends a signal to a child that has not been waited for, so its number is its own.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
}

#[test]
fn helper_that_ends_when_asked() {
    let Some(path) = path_of_this_other_process() else { return };
    let executor = RealExecutor::new().expect("io_uring");
    let (first, second) =
        (executor.interrupted().expect("handlers"), executor.interrupted().expect("handlers"));
    assert!(!interrupt_requested());
    std::fs::write(path, "").expect("written");
    let context = executor.context();
    let limited = context.time_limit_ns(20_000_000_000, Box::pin(first));
    assert_eq!(executor.block_on(limited), Ok(()), "no signal came");
    assert!(interrupt_requested());
    executor.block_on(second);
    // A later wait ends at once, on another executor as well.
    let late = RealExecutor::new().expect("io_uring");
    late.block_on(late.interrupted().expect("handlers"));
    std::process::exit(17);
}

#[test]
fn helper_that_hangs_on_its_way_out() {
    let Some(path) = path_of_this_other_process() else { return };
    let executor = RealExecutor::new().expect("io_uring");
    let interrupted = executor.interrupted().expect("handlers");
    std::fs::write(&path, "").expect("written");
    executor.block_on(interrupted);
    std::fs::write(path.with_extension("interrupted"), "").expect("written");
    std::thread::sleep(Duration::from_secs(20));
}

#[test]
fn the_first_signal_asks_and_the_second_kills() {
    let directory = disk_directory();
    for kind in [libc::SIGTERM, libc::SIGINT] {
        let mut child = start_interruptible("helper_that_ends_when_asked", directory.path());
        signal(&child, kind);
        assert_eq!(child.wait().expect("ended").code(), Some(17));
        std::fs::remove_file(directory.path().join("helper_that_ends_when_asked")).expect("removed");
    }
    let mut child = start_interruptible("helper_that_hangs_on_its_way_out", directory.path());
    signal(&child, libc::SIGINT);
    let interrupted = directory.path().join("helper_that_hangs_on_its_way_out.interrupted");
    kit::wait_until("the first signal is seen", || interrupted.exists());
    signal(&child, libc::SIGINT);
    assert_eq!(child.wait().expect("ended").signal(), Some(libc::SIGINT));
}
