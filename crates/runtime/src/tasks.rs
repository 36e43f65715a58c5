//! The core of both executors: a table of tasks, a first-in-first-out queue of those that are
//! ready, and timers. One thread only; the executors differ in their clock and in what they do when
//! nothing is ready.
//!
//! A task is polled only when woken, once for any number of wakes. No borrow
//! of the tables is held while a task, a waker or a future's destructor runs: they may come back
//! here.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::{Context as TaskContext, Poll, Waker};

use stripewise_drive::{Spawn, TimerId};

use crate::timers::Timers;
use crate::waker::{GENERATION_MASK, INDEX_BITS, Mailbox, Registration, TaskKey};

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// The slot of the future handed to `block_on`, which the table does not own.
const MAIN: u32 = 0;

struct Slot {
    /// `None` when free, while being polled, and always for [`MAIN`].
    task: Option<Task>,
    generation: u32,
    queued: bool,
}

struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
    ready: VecDeque<u32>,
    /// Tasks that have not ended, the main future apart.
    alive: usize,
    /// State of the generator that picks among ready tasks; zero: first in, first out.
    shuffle: u64,
}

impl Table {
    fn wake(&mut self, index: u32, generation: u32) {
        let Some(slot) = self.slots.get_mut(index as usize) else { return };
        if slot.queued || slot.generation & GENERATION_MASK != generation {
            return;
        }
        slot.queued = true;
        self.ready.push_back(index);
    }

    fn next(&mut self) -> Option<u32> {
        if self.shuffle != 0 && self.ready.len() > 1 {
            // xorshift64: any fixed sequence will do, as long as the seed repeats it.
            self.shuffle ^= self.shuffle << 13;
            self.shuffle ^= self.shuffle >> 7;
            self.shuffle ^= self.shuffle << 17;
            let pick = (self.shuffle % self.ready.len() as u64) as usize;
            self.ready.swap(0, pick);
        }
        self.ready.pop_front()
    }
}

/// What a ready task turned out to be.
pub(crate) enum Next {
    /// The main future is to be polled, by its owner.
    Main,
    /// A task was polled.
    Task,
    /// Nothing is ready.
    Idle,
}

/// Tasks and timers of one executor.
pub(crate) struct Core {
    table: RefCell<Table>,
    timers: RefCell<Timers>,
    registration: Registration,
    running: Cell<bool>,
    closed: Cell<bool>,
}

thread_local! {
    /// The executor whose turn it is on this thread; set only while a [`Turn`] lives.
    static CURRENT: Cell<Option<NonNull<Core>>> = const { Cell::new(None) };
}

/// Wakes a task of the executor running on this thread; `false` if it belongs to another one.
pub(crate) fn wake_on_this_thread(key: TaskKey) -> bool {
    let Some(core) = CURRENT.get() else { return false };
    // SAFETY: `CURRENT` is set from a reference that outlives the turn, and reset when the turn
    // ends (`Turn::drop`).
    let core = unsafe { core.as_ref() };
    if core.registration.executor != key.executor {
        return false;
    }
    core.table.borrow_mut().wake(key.index, key.generation);
    true
}

/// While it lives, wakes on this thread go straight to its executor.
pub(crate) struct Turn<'a> {
    previous: Option<NonNull<Core>>,
    _core: &'a Core,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        CURRENT.set(self.previous);
    }
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
    /// `shuffle_seed`: pick ready tasks at random by this seed, instead of first in, first out.
    pub(crate) fn new(registration: Registration, shuffle_seed: Option<u64>) -> Rc<Self> {
        let main = Slot { task: None, generation: 0, queued: false };
        let shuffle = shuffle_seed.map_or(0, |seed| seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let table = Table { slots: vec![main], free: Vec::new(), ready: VecDeque::new(), alive: 0, shuffle };
        Rc::new(Self {
            table: RefCell::new(table),
            timers: RefCell::new(Timers::default()),
            registration,
            running: Cell::new(false),
            closed: Cell::new(false),
        })
    }

    /// Where wakes from outside arrive.
    pub(crate) fn mailbox(&self) -> &Mailbox {
        &self.registration.mailbox
    }

    /// Makes this the executor that wakes on this thread go to.
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn { previous: CURRENT.replace(Some(NonNull::from(self))), _core: self }
    }

    /// Begins a `block_on`: the main future is ready at first.
    pub(crate) fn start(&self) -> Running<'_> {
        assert!(!self.running.replace(true), "block_on called from within a task of the same executor");
        self.take_mail();
        self.table.borrow_mut().wake(MAIN, 0);
        Running { core: self, _turn: self.turn() }
    }

    /// The main future's waker.
    pub(crate) fn main_waker(&self) -> Waker {
        TaskKey { executor: self.registration.executor, generation: 0, index: MAIN }.waker()
    }

    /// Tasks that have not ended, the main future apart.
    pub(crate) fn tasks_alive(&self) -> usize {
        self.table.borrow().alive
    }

    /// Whether a task is ready.
    pub(crate) fn has_ready(&self) -> bool {
        !self.table.borrow().ready.is_empty()
    }

    /// Polls the next ready task, unless it is the main future.
    pub(crate) fn run_next(&self) -> Next {
        let (index, generation, task) = {
            let mut table = self.table.borrow_mut();
            let Some(index) = table.next() else { return Next::Idle };
            let slot = &mut table.slots[index as usize];
            slot.queued = false;
            if index == MAIN {
                return Next::Main;
            }
            (index, slot.generation, slot.task.take())
        };
        // A slot without a task: it ended (or panicked) while queued.
        let Some(mut task) = task else { return Next::Task };
        let waker = TaskKey { executor: self.registration.executor, generation, index }.waker();
        let outcome = task.as_mut().poll(&mut TaskContext::from_waker(&waker));
        let mut table = self.table.borrow_mut();
        let Some(slot) = table.slots.get_mut(index as usize) else { return Next::Task };
        match outcome {
            Poll::Pending => slot.task = Some(task),
            Poll::Ready(()) => {
                slot.generation = slot.generation.wrapping_add(1);
                table.free.push(index);
                table.alive -= 1;
                drop(table);
                drop(task);
            }
        }
        Next::Task
    }

    /// Queues the tasks that other threads have woken.
    pub(crate) fn take_mail(&self) {
        let posted = self.mailbox().take();
        if !posted.is_empty() {
            let mut table = self.table.borrow_mut();
            posted.iter().for_each(|key| table.wake(key.index, key.generation));
        }
    }

    /// Sets a timer.
    pub(crate) fn wake_at(&self, deadline_ns: u64, waker: Waker) -> TimerId {
        self.timers.borrow_mut().insert(deadline_ns, waker)
    }

    /// Takes a timer back.
    pub(crate) fn cancel(&self, timer: TimerId) {
        let waker = self.timers.borrow_mut().cancel(timer);
        drop(waker);
    }

    /// When the next timer is due.
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

    /// Drops every task and timer; tasks started from now on are dropped at once. Breaks the cycles
    /// of tasks that hold the executor's context.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        let _turn = self.turn();
        loop {
            let slot = self.table.borrow_mut().slots.pop();
            match slot {
                Some(slot) => drop(slot),
                None => break,
            }
        }
        let mut table = self.table.borrow_mut();
        table.ready.clear();
        table.free.clear();
        table.alive = 0;
        drop(table);
        let wakers = self.timers.borrow_mut().take_all();
        drop(wakers);
    }
}

impl Spawn for Core {
    fn spawn(&self, task: Task) {
        if self.closed.get() {
            return;
        }
        let mut table = self.table.borrow_mut();
        let index = table.free.pop().unwrap_or_else(|| {
            table.slots.push(Slot { task: None, generation: 0, queued: false });
            (table.slots.len() - 1) as u32
        });
        assert!(index < 1 << INDEX_BITS, "at most 16 million tasks at once");
        let slot = &mut table.slots[index as usize];
        slot.task = Some(task);
        let generation = slot.generation & GENERATION_MASK;
        table.alive += 1;
        table.wake(index, generation);
    }
}
