//! Visits: another thread has a closure run on an executor's thread, between two polls of its
//! tasks, and waits for it. So the visitor can look at state that belongs to that thread, or change
//! it, without a lock: its tasks, free lists and wakers are used as its own tasks use them.
//!
//! No two threads wait for each other: a thread that can be visited visits none.
//!
//! Expected faults: a closure that panics (the visitor gets the panic), an executor that ends, or
//! whose thread panics, before it has run a closure (the visitor learns that it was not run).

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};

/// The executor has ended, and has not run the closure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended;

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the thread has ended")
    }
}

impl std::error::Error for Ended {}

type Outcome = Result<(), Box<dyn Any + Send>>;

/// A closure that another thread waits for.
struct Visit {
    /// On the visitor's stack, which stays as it is until `over` has sent or is dropped.
    look: NonNull<dyn FnMut() + Send>,
    over: Sender<Outcome>,
}

// SAFETY: the closure is `Send`, and nothing else uses it while this exists: its owner waits.
unsafe impl Send for Visit {}

impl Visit {
    fn run(self) {
        let Self { mut look, over } = self;
        // SAFETY: the visitor is in `Visits::make`, which keeps the closure in place, and does not
        // use it, until `over` has sent or is dropped. Both come after this.
        let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { look.as_mut()() }));
        // The visitor waits, so it receives.
        let _ = over.send(outcome);
    }
}

/// Visits of one executor that were not run yet.
#[derive(Default)]
pub(crate) struct Visits {
    /// `None` before the first `Visitor` is made, and after the executor has ended.
    waiting: Mutex<Option<Vec<Visit>>>,
    /// True if `waiting` may not be empty; saves the executor the lock.
    pending: AtomicBool,
}

thread_local! {
    /// Number of executors of this thread that can be visited.
    static VISITED: Cell<usize> = const { Cell::new(0) };
}

impl Visits {
    /// Admits visits. To be called on the executor's thread.
    pub(crate) fn open(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.is_none() {
            *waiting = Some(Vec::new());
            VISITED.set(VISITED.get() + 1);
        }
    }

    /// Admits no more visits; those that were not run are not run. To be called on the executor's
    /// thread.
    pub(crate) fn close(&self) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        if waiting.is_some() {
            VISITED.set(VISITED.get() - 1);
        }
        drop(waiting);
    }

    /// True if a visit may be waiting.
    #[inline]
    pub(crate) fn are_pending(&self) -> bool {
        self.pending.load(Ordering::SeqCst)
    }

    /// Runs all that wait.
    #[cold]
    pub(crate) fn run_all(&self) {
        self.pending.store(false, Ordering::SeqCst);
        let visits = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.as_mut().map(std::mem::take)
        };
        visits.into_iter().flatten().for_each(Visit::run);
    }

    /// Adds a visit; `false` if none are admitted.
    fn add(&self, visit: Visit) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(waiting) = &mut *waiting else { return false };
        waiting.push(visit);
        // Sequentially consistent, as for wakes (`Mailbox::ring`).
        self.pending.store(true, Ordering::SeqCst);
        true
    }

    /// Has the executor run `look`, once or not at all, and waits. `ring` wakes it.
    pub(crate) fn make(&self, look: &mut (dyn FnMut() + Send), ring: impl FnOnce()) -> Result<(), Ended> {
        assert_eq!(VISITED.get(), 0, "a thread that can be visited visits none");
        let (over, outcome) = channel();
        // SAFETY: only the lifetime changes. The closure is used through this pointer alone until
        // `outcome` ends, and this function neither returns nor unwinds before.
        let look = unsafe {
            std::mem::transmute::<NonNull<dyn FnMut() + Send + '_>, NonNull<dyn FnMut() + Send>>(
                NonNull::from(look),
            )
        };
        if self.add(Visit { look, over }) {
            ring();
        }
        match outcome.recv() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => Err(Ended),
        }
    }
}
