//! A tiny executor in virtual time for this crate's own tests: tasks run in the order they were
//! woken, and when none can run the clock jumps to the next timer. The product's executors live in
//! another crate, which depends on this one.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll, Wake, Waker};

use stripewise_drive::{Clock, Context, IoResult, Spawn, TimerId};

pub type Task = Pin<Box<dyn Future<Output = ()>>>;

#[derive(Default)]
struct Shared {
    now_ns: Cell<u64>,
    next_timer: Cell<u64>,
    timers: RefCell<BTreeMap<(u64, u64), Waker>>,
    deadlines: RefCell<BTreeMap<u64, u64>>,
    tasks: RefCell<Vec<Option<Task>>>,
    ready: Arc<Mutex<VecDeque<usize>>>,
}

impl Clock for Shared {
    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn wake_at(&self, deadline_ns: u64, waker: Waker) -> TimerId {
        let id = self.next_timer.get();
        self.next_timer.set(id + 1);
        self.timers.borrow_mut().insert((deadline_ns, id), waker);
        self.deadlines.borrow_mut().insert(id, deadline_ns);
        TimerId(id)
    }

    fn cancel(&self, timer: TimerId) {
        if let Some(deadline) = self.deadlines.borrow_mut().remove(&timer.0) {
            self.timers.borrow_mut().remove(&(deadline, timer.0));
        }
    }
}

struct TaskWaker {
    task: usize,
    ready: Arc<Mutex<VecDeque<usize>>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready.lock().unwrap().push_back(self.task);
    }
}

struct Spawner(Rc<Shared>);

impl Spawn for Spawner {
    fn spawn(&self, task: Task) {
        let mut tasks = self.0.tasks.borrow_mut();
        self.0.ready.lock().unwrap().push_back(tasks.len());
        tasks.push(Some(task));
    }
}

/// Single-threaded, deterministic.
pub struct Executor {
    shared: Rc<Shared>,
}

impl Executor {
    pub fn new() -> Self {
        Self { shared: Rc::new(Shared::default()) }
    }

    pub fn context(&self) -> Context {
        Context::new(self.shared.clone(), Rc::new(Spawner(self.shared.clone())))
    }

    /// Timers set and not yet fired or taken back.
    pub fn timers(&self) -> usize {
        self.shared.timers.borrow().len()
    }

    /// Tasks that have not ended.
    pub fn tasks(&self) -> usize {
        self.shared.tasks.borrow().iter().flatten().count()
    }

    /// Runs everything that can run, without letting time pass.
    pub fn run_ready(&self) {
        loop {
            let next = self.shared.ready.lock().unwrap().pop_front();
            let Some(index) = next else { return };
            let Some(mut task) = self.shared.tasks.borrow_mut()[index].take() else { continue };
            let waker = Waker::from(Arc::new(TaskWaker { task: index, ready: self.shared.ready.clone() }));
            if task.as_mut().poll(&mut TaskContext::from_waker(&waker)).is_pending() {
                self.shared.tasks.borrow_mut()[index] = Some(task);
            }
        }
    }

    /// Runs until nothing can run and no timer is left.
    pub fn run_until_idle(&self) {
        loop {
            self.run_ready();
            if !self.advance() {
                return;
            }
        }
    }

    fn advance(&self) -> bool {
        let Some(((deadline_ns, id), waker)) = self.shared.timers.borrow_mut().pop_first() else {
            return false;
        };
        self.shared.deadlines.borrow_mut().remove(&id);
        self.shared.now_ns.set(self.shared.now_ns.get().max(deadline_ns));
        waker.wake();
        true
    }

    pub fn block_on<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        let mut handle = self.context().spawn(future);
        let mut poll = TaskContext::from_waker(Waker::noop());
        loop {
            self.run_ready();
            if let Poll::Ready(result) = Pin::new(&mut handle).poll(&mut poll) {
                return result;
            }
            assert!(self.advance(), "deadlock in virtual time");
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // Tasks hold contexts, contexts hold tasks: break the circle.
        let tasks = self.shared.tasks.take();
        drop(tasks);
        self.shared.timers.take();
    }
}

/// Counts how often it is woken.
#[derive(Default)]
pub struct CountingWaker(pub std::sync::atomic::AtomicUsize);

impl CountingWaker {
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    pub fn count(&self) -> usize {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// The answer of a drive that answers at once.
pub fn at_once(completion: stripewise_drive::Completion) -> IoResult {
    completion.try_take().unwrap_or_else(|_| panic!("expected an answer at once"))
}

/// Bytes that differ from place to place and from seed to seed.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(step).collect()
}
