//! Wakers as plain numbers: executor, task slot and the slot's generation in one machine word.
//! Cloning and dropping a waker cost nothing, and waking a task of the running executor takes a
//! flag and a queue entry.
//!
//! A waker may be used on any thread and may outlive its executor. A wake for an executor that does
//! not run on this thread goes through a registry of live executors and a locked queue; a wake for
//! an executor that has ended does nothing. A stale number at worst wakes a later task in the same
//! slot needlessly, which futures must tolerate anyway.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{RawWaker, RawWakerVTable, Waker};

use rustc_hash::FxHashSet;

use crate::tasks::task_key::TaskKey;
use crate::tasks::task_table::wake_on_this_thread;
use crate::tasks::visits::Visits;

/// Creates a waker of the task.
pub(crate) fn waker_of(key: TaskKey) -> Waker {
    // SAFETY: the functions of VTABLE take the data as a number, never as an address; they
    // allocate nothing per waker, so clone and drop need no counting, and waking is sound from
    // any thread (see `wake`).
    unsafe { Waker::from_raw(RawWaker::new(key.pack(), &VTABLE)) }
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(|data| RawWaker::new(data, &VTABLE), wake, wake, |_| {});

fn wake(data: *const ()) {
    let key = TaskKey::unpack(data);
    if wake_on_this_thread(key) {
        return;
    }
    let mailbox = registry().mailboxes.get(key.executor as usize).cloned().flatten();
    if let Some(mailbox) = mailbox {
        mailbox.post(key);
    }
}

/// Wakes in order of arrival, at most one for each task, which bounds its length.
#[derive(Default)]
struct Posted {
    order: Vec<TaskKey>,
    known: FxHashSet<TaskKey>,
}

/// Queue for wakes from outside the executor's own turn.
pub(crate) struct Mailbox {
    posted: Mutex<Posted>,
    /// True if `posted` may not be empty; saves the executor the lock.
    pending: AtomicBool,
    /// Set while the executor's thread sleeps in the kernel, or is about to.
    sleeping: AtomicBool,
    /// Descriptor written to wake a sleeping executor; `None` for one that never sleeps.
    doorbell: Option<OwnedFd>,
    /// Closures that other threads wait for.
    pub(crate) visits: Visits,
}

impl Mailbox {
    fn post(&self, key: TaskKey) {
        {
            let mut posted = self.posted.lock().unwrap_or_else(PoisonError::into_inner);
            if posted.known.insert(key) {
                posted.order.push(key);
            }
        }
        self.pending.store(true, Ordering::SeqCst);
        self.ring();
    }

    /// Wakes the executor if it sleeps, after a post or a visit was marked as pending.
    pub(crate) fn ring(&self) {
        // Sequentially consistent on both sides: either this thread sees `sleeping`, or the
        // executor, which checks `pending` again after setting it, sees the post.
        if self.sleeping.load(Ordering::SeqCst)
            && self.sleeping.swap(false, Ordering::SeqCst)
            && let Some(doorbell) = &self.doorbell
        {
            let one = 1_u64.to_ne_bytes();
            // SAFETY: writes eight bytes from a live array to a descriptor that `self` owns. The
            // write fails only when the counter is full, and then the executor is already being
            // woken.
            unsafe { libc::write(doorbell.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        }
    }

    /// Takes the tasks posted since the last call.
    pub(crate) fn take(&self) -> Vec<TaskKey> {
        if !self.pending.load(Ordering::Relaxed) || !self.pending.swap(false, Ordering::SeqCst) {
            return Vec::new();
        }
        let mut posted = self.posted.lock().unwrap_or_else(PoisonError::into_inner);
        posted.known.clear();
        std::mem::take(&mut posted.order)
    }

    /// Announces that the executor is going to sleep; false if it must not, as a wake was posted or
    /// a visitor waits.
    pub(crate) fn try_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        if self.pending.load(Ordering::SeqCst) || self.visits.are_pending() {
            self.awake();
            return false;
        }
        true
    }

    /// Records that the executor runs again, so that posts need no doorbell.
    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }

    /// The descriptor that becomes readable to wake a sleeping executor.
    pub(crate) fn doorbell(&self) -> Option<&OwnedFd> {
        self.doorbell.as_ref()
    }
}

struct Registry {
    /// Mailboxes by executor number; `None` for an executor that has ended.
    mailboxes: Vec<Option<Arc<Mailbox>>>,
    free: Vec<u16>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { mailboxes: Vec::new(), free: Vec::new() });

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An executor's number and mailbox. Dropping it frees the number.
pub(crate) struct Registration {
    pub(crate) executor: u16,
    pub(crate) mailbox: Arc<Mailbox>,
}

impl Registration {
    /// Assigns a number. Panics beyond 65,536 executors alive in one process.
    pub(crate) fn new(doorbell: Option<OwnedFd>) -> Self {
        let mailbox = Arc::new(Mailbox {
            posted: Mutex::default(),
            pending: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            doorbell,
            visits: Visits::default(),
        });
        let mut registry = registry();
        let executor = registry.free.pop().unwrap_or_else(|| {
            registry.mailboxes.push(None);
            u16::try_from(registry.mailboxes.len() - 1).expect("at most 65,536 executors alive at once")
        });
        registry.mailboxes[executor as usize] = Some(mailbox.clone());
        Self { executor, mailbox }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut registry = registry();
        registry.mailboxes[self.executor as usize] = None;
        registry.free.push(self.executor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakers_of_one_task_are_equal() {
        let key = TaskKey { executor: 9, generation: 8, index: 7 };
        assert!(waker_of(key).will_wake(&waker_of(key).clone()));
    }

    #[test]
    fn a_waker_of_an_ended_executor_does_nothing() {
        let registration = Registration::new(None);
        let waker = waker_of(TaskKey { executor: registration.executor, generation: 0, index: 0 });
        (0..1000).for_each(|_| waker.wake_by_ref());
        assert_eq!(registration.mailbox.take().len(), 1, "a task is posted once, however often it is woken");
        assert!(registration.mailbox.take().is_empty());
        drop(registration);
        waker.wake();
    }

    #[test]
    fn a_post_before_sleep_keeps_the_executor_awake() {
        let registration = Registration::new(None);
        let waker = waker_of(TaskKey { executor: registration.executor, generation: 0, index: 0 });
        assert!(registration.mailbox.try_sleep());
        waker.wake_by_ref();
        assert!(!registration.mailbox.try_sleep());
    }
}
