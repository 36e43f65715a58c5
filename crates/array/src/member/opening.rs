//! One member's part of the state that the members of a drive on several threads share: what the
//! others see of it, and how they call it.
//!
//! Only its own thread changes the counts of an opening, so that a drive with one member pays for
//! no atomic operation. Expected faults: none.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use stripewise_drive::CauseMeter;

/// Value of [`Opening::loaded_until_ns`] while clients' requests are queued or in flight.
const LOADED: u64 = u64::MAX;

/// Part of a member that the drive's members on other threads see. It has its own cache lines.
#[repr(align(128))]
pub(super) struct Opening {
    /// From 1.
    pub number: u64,
    pub causes: CauseMeter,
    pub requests: Count,
    pub read_bytes: Count,
    pub written_bytes: Count,
    /// Service times of background requests, and of foreground and upkeep requests, ns.
    pub background_busy_ns: Count,
    pub foreground_busy_ns: Count,
    /// Service time of clients' requests, ns.
    pub clients_busy_ns: Count,
    /// Time at which the drive counts as free of this member's clients.
    loaded_until_ns: AtomicU64,
    is_called: AtomicBool,
    dispatcher: Mutex<Option<Waker>>,
}

/// A count that only its own thread changes.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, number: u64) {
        self.0.store(self.get().wrapping_add(number), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Opening {
    /// The opening with this number, from 1.
    pub(super) fn new(number: u64) -> Self {
        Self {
            number,
            causes: CauseMeter::default(),
            requests: Count::default(),
            read_bytes: Count::default(),
            written_bytes: Count::default(),
            background_busy_ns: Count::default(),
            foreground_busy_ns: Count::default(),
            clients_busy_ns: Count::default(),
            loaded_until_ns: AtomicU64::new(0),
            is_called: AtomicBool::new(false),
            dispatcher: Mutex::new(None),
        }
    }

    fn dispatcher(&self) -> MutexGuard<'_, Option<Waker>> {
        self.dispatcher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the member's dispatcher look at what has changed for all.
    pub(super) fn call(&self) {
        self.is_called.store(true, Ordering::SeqCst);
        if let Some(waker) = &*self.dispatcher() {
            waker.wake_by_ref();
        }
    }

    /// True if the member was called since the last time.
    pub(super) fn take_call(&self) -> bool {
        self.is_called.load(Ordering::SeqCst) && self.is_called.swap(false, Ordering::SeqCst)
    }

    /// Sets the waker of the member's dispatcher; `None` when the member has ended.
    pub(super) fn set_dispatcher(&self, waker: Option<Waker>) {
        *self.dispatcher() = waker;
    }

    /// Records that a client's request is queued or in flight.
    pub(super) fn note_load(&self) {
        self.loaded_until_ns.store(LOADED, Ordering::Release);
    }

    /// Records that no client's request is there from `until_ns` on, unless one comes.
    pub(super) fn note_no_load(&self, until_ns: u64) {
        self.loaded_until_ns.store(until_ns, Ordering::Release);
    }

    /// Time at which the drive counts as free of this member's clients; `None` while they have
    /// requests.
    pub(super) fn loaded_until_ns(&self) -> Option<u64> {
        Some(self.loaded_until_ns.load(Ordering::Acquire)).filter(|until_ns| *until_ns != LOADED)
    }
}
