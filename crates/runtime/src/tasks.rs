//! The core of both executors: a table of tasks and timers. One thread only; the executors differ
//! in their clock and in what they do when nothing is ready.
//!
//! A task is polled only when woken, once for any number of wakes. No borrow of the timers is held
//! while a waker runs: it may come back here.

pub(crate) mod task_key;
pub(crate) mod task_table;
pub(crate) mod timers;
pub(crate) mod visitor;
pub(crate) mod visits;
pub(crate) mod waker;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use stripewise_drive::{Shard, Spawn, TimerId};

use crate::tasks::task_table::{Ready, Task, TaskTable, Turn};
use crate::tasks::timers::Timers;
use crate::tasks::waker::{Mailbox, Registration, waker_of};

/// Result of running the next ready task.
pub(crate) enum Next {
    /// The main future is next, which its owner polls.
    Main,
    /// A task was polled.
    Task,
    /// Nothing is ready.
    Idle,
}

/// Tasks and timers of one executor.
pub(crate) struct Core {
    table: TaskTable,
    timers: RefCell<Timers>,
    registration: Registration,
    running: Cell<bool>,
    closed: Cell<bool>,
    shards: RefCell<Vec<Arc<dyn Shard>>>,
}

/// Marks the executor as running; nested `block_on` of the same executor is a bug.
pub(crate) struct Running<'a> {
    core: &'a Core,
    _turn: Turn<'a>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.core.running.set(false);
    }
}

impl Core {
    /// With `shuffle_seed`, ready tasks run in a random order from this seed instead of first in,
    /// first out.
    pub(crate) fn new(registration: Registration, shuffle_seed: Option<u64>) -> Rc<Self> {
        Rc::new(Self {
            table: TaskTable::new(registration.executor, shuffle_seed),
            timers: RefCell::new(Timers::default()),
            registration,
            running: Cell::new(false),
            closed: Cell::new(false),
            shards: RefCell::default(),
        })
    }

    /// Sets the other threads that may have work of this one.
    pub(crate) fn set_shards(&self, shards: Vec<Arc<dyn Shard>>) {
        self.shards.replace(shards);
    }

    /// Mailbox for wakes from other threads.
    pub(crate) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.registration.mailbox
    }

    /// Makes this the executor that receives wakes on this thread.
    pub(crate) fn turn(&self) -> Turn<'_> {
        self.table.turn()
    }

    /// Starts a `block_on`, with the main future ready.
    pub(crate) fn start(&self) -> Running<'_> {
        assert!(!self.running.replace(true), "block_on called from within a task of the same executor");
        self.take_mail();
        self.table.wake(&[self.table.main_key()]);
        Running { core: self, _turn: self.turn() }
    }

    /// The main future's waker.
    pub(crate) fn main_waker(&self) -> Waker {
        waker_of(self.table.main_key())
    }

    /// Number of unfinished tasks, without the main future.
    pub(crate) fn tasks_alive(&self) -> usize {
        self.table.alive()
    }

    /// True if a task is ready.
    pub(crate) fn has_ready(&self) -> bool {
        self.table.has_ready()
    }

    /// Polls the next ready task, unless it is the main future.
    pub(crate) fn run_next(&self) -> Next {
        let (key, mut task) = match self.table.take_ready() {
            Ready::Idle => return Next::Idle,
            Ready::Main => return Next::Main,
            Ready::Task(None) => return Next::Task,
            Ready::Task(Some(taken)) => taken,
        };
        match task.as_mut().poll(&mut TaskContext::from_waker(&waker_of(key))) {
            Poll::Pending => self.table.put_back(key, task),
            Poll::Ready(()) => {
                self.table.end(key);
                drop(task);
            }
        }
        Next::Task
    }

    /// Queues the tasks that other threads have woken.
    pub(crate) fn take_mail(&self) {
        let posted = self.mailbox().take();
        if !posted.is_empty() {
            self.table.wake(&posted);
        }
    }

    /// Sets a timer.
    pub(crate) fn wake_at(&self, deadline_ns: u64, waker: Waker) -> TimerId {
        self.timers.borrow_mut().insert(deadline_ns, waker)
    }

    /// Cancels a timer.
    pub(crate) fn cancel(&self, timer: TimerId) {
        let waker = self.timers.borrow_mut().cancel(timer);
        drop(waker);
    }

    /// Deadline of the next timer.
    pub(crate) fn next_deadline_ns(&self) -> Option<u64> {
        self.timers.borrow().next_deadline_ns()
    }

    /// Fires every timer due at `now_ns`.
    pub(crate) fn fire_due(&self, now_ns: u64) {
        loop {
            let due = self.timers.borrow_mut().pop_due(now_ns);
            match due {
                Some(waker) => waker.wake(),
                None => break,
            }
        }
    }

    /// Drops every task and timer, and every task spawned later. This breaks the cycles of tasks
    /// that hold the executor's context.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.mailbox().visits.close();
        let _turn = self.turn();
        self.table.clear();
        let wakers = self.timers.borrow_mut().take_all();
        drop(wakers);
    }
}

impl Spawn for Core {
    fn spawn(&self, task: Task) {
        if !self.closed.get() {
            self.table.insert(task);
        }
    }

    fn shards(&self) -> Vec<Arc<dyn Shard>> {
        self.shards.borrow().clone()
    }
}
