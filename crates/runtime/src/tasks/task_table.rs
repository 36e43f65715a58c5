//! The tasks of one executor: slots, and a first-in-first-out queue of ready tasks. Wakes on the
//! thread that runs the executor come directly here.
//!
//! No borrow of the table is held while a task, a waker or a future's destructor runs, since they
//! may call back into it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;

use crate::tasks::task_key::{GENERATION_MASK, INDEX_BITS, TaskKey};

/// A future that the table owns.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// The slot of the future handed to `block_on`, which the table does not own.
const MAIN: u32 = 0;

#[derive(Default)]
struct Slot {
    /// `None` when free, while being polled, and always for [`MAIN`].
    task: Option<Task>,
    generation: u32,
    queued: bool,
}

struct Inner {
    slots: Vec<Slot>,
    free: Vec<u32>,
    ready: VecDeque<u32>,
    /// Number of unfinished tasks, without the main future.
    alive: usize,
    /// State of the random generator that selects ready tasks; zero: first in, first out.
    shuffle: u64,
}

impl Inner {
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
            // xorshift64: any sequence will do that the seed reproduces.
            self.shuffle ^= self.shuffle << 13;
            self.shuffle ^= self.shuffle >> 7;
            self.shuffle ^= self.shuffle << 17;
            let pick = (self.shuffle % self.ready.len() as u64) as usize;
            self.ready.swap(0, pick);
        }
        self.ready.pop_front()
    }
}

/// The next ready task.
pub(crate) enum Ready {
    /// The main future, which its owner polls.
    Main,
    /// A task, taken out of its slot until it is put back; `None` if it ended or panicked while
    /// queued.
    Task(Option<(TaskKey, Task)>),
    /// Nothing is ready.
    Idle,
}

/// The table of one executor.
pub(crate) struct TaskTable {
    executor: u16,
    inner: RefCell<Inner>,
}

impl TaskTable {
    /// With `shuffle_seed`, ready tasks run in a random order from this seed instead of first in,
    /// first out.
    pub(crate) fn new(executor: u16, shuffle_seed: Option<u64>) -> Self {
        let shuffle = shuffle_seed.map_or(0, |seed| seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let slots = vec![Slot::default()];
        let inner = Inner { slots, free: Vec::new(), ready: VecDeque::new(), alive: 0, shuffle };
        Self { executor, inner: RefCell::new(inner) }
    }

    /// Makes this the table that receives wakes on this thread.
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn { previous: CURRENT.replace(Some(NonNull::from(self))), _table: self }
    }

    /// Key of the main future.
    pub(crate) fn main_key(&self) -> TaskKey {
        TaskKey { executor: self.executor, generation: 0, index: MAIN }
    }

    /// Number of unfinished tasks, without the main future.
    pub(crate) fn alive(&self) -> usize {
        self.inner.borrow().alive
    }

    /// True if a task is ready.
    pub(crate) fn has_ready(&self) -> bool {
        !self.inner.borrow().ready.is_empty()
    }

    /// Queues these tasks, except those that are already queued or have ended.
    pub(crate) fn wake(&self, keys: &[TaskKey]) {
        let mut inner = self.inner.borrow_mut();
        keys.iter().for_each(|key| inner.wake(key.index, key.generation));
    }

    /// Adds a task, which is ready.
    pub(crate) fn insert(&self, task: Task) {
        let mut inner = self.inner.borrow_mut();
        let index = inner.free.pop().unwrap_or_else(|| {
            inner.slots.push(Slot::default());
            (inner.slots.len() - 1) as u32
        });
        assert!(index < 1 << INDEX_BITS, "at most 16 million tasks at once");
        let slot = &mut inner.slots[index as usize];
        slot.task = Some(task);
        let generation = slot.generation & GENERATION_MASK;
        inner.alive += 1;
        inner.wake(index, generation);
    }

    /// Takes the next ready task out of its slot.
    pub(crate) fn take_ready(&self) -> Ready {
        let mut inner = self.inner.borrow_mut();
        let Some(index) = inner.next() else { return Ready::Idle };
        let slot = &mut inner.slots[index as usize];
        slot.queued = false;
        if index == MAIN {
            return Ready::Main;
        }
        let key = TaskKey { executor: self.executor, generation: slot.generation, index };
        Ready::Task(slot.task.take().map(|task| (key, task)))
    }

    /// Returns an unfinished task to its slot after a poll.
    pub(crate) fn put_back(&self, key: TaskKey, task: Task) {
        let mut inner = self.inner.borrow_mut();
        if let Some(slot) = inner.slots.get_mut(key.index as usize) {
            slot.task = Some(task);
        }
    }

    /// Frees the slot of a finished task.
    pub(crate) fn end(&self, key: TaskKey) {
        let mut inner = self.inner.borrow_mut();
        let Some(slot) = inner.slots.get_mut(key.index as usize) else { return };
        slot.generation = slot.generation.wrapping_add(1);
        inner.free.push(key.index);
        inner.alive -= 1;
    }

    /// Drops every task.
    pub(crate) fn clear(&self) {
        loop {
            let slot = self.inner.borrow_mut().slots.pop();
            match slot {
                Some(slot) => drop(slot),
                None => break,
            }
        }
        let mut inner = self.inner.borrow_mut();
        inner.ready.clear();
        inner.free.clear();
        inner.alive = 0;
    }
}

thread_local! {
    /// The executor that runs on this thread; set only while a [`Turn`] exists.
    static CURRENT: Cell<Option<NonNull<TaskTable>>> = const { Cell::new(None) };
}

/// Wakes a task of the executor that runs on this thread; false if it belongs to another one.
pub(crate) fn wake_on_this_thread(key: TaskKey) -> bool {
    let Some(table) = CURRENT.get() else { return false };
    // SAFETY: `CURRENT` is set from a reference that outlives the turn, and reset when the turn
    // ends (`Turn::drop`).
    let table = unsafe { table.as_ref() };
    if table.executor != key.executor {
        return false;
    }
    table.inner.borrow_mut().wake(key.index, key.generation);
    true
}

/// While it exists, wakes on this thread go directly to its executor.
pub(crate) struct Turn<'a> {
    previous: Option<NonNull<TaskTable>>,
    _table: &'a TaskTable,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        CURRENT.set(self.previous);
    }
}
