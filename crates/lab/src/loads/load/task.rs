//! One request slot: chooses, performs and counts a request, then the next.
//!
//! Expects targets that fail (counted, reported, throttled) and targets that always answer at once
//! (tasks yield).

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use stripewise_drive::{Buffer, Context, SplitMix64, yield_now};

use super::window::Window;
use super::{POLL_NS, Pulse, STALL_NS};
use crate::loads::contents::Contents;
use crate::loads::target::Target;
use crate::loads::workload::{Arrival, Choice, JobCursor, ResolvedWorkload};

/// Consecutive answers without a wait after which a task yields.
const AT_ONCE_LIMIT: u32 = 16;
/// Pause of a task after an error, so that a dead target does not receive a million requests a
/// second.
const ERROR_PAUSE_NS: u64 = 1_000_000;
/// Maximum number of error messages kept; others are only counted.
pub(super) const MESSAGES_KEPT: usize = 5;

/// State shared by all tasks of a load.
pub(super) struct Shared<T> {
    pub(super) context: Context,
    pub(super) target: T,
    pub(super) workload: ResolvedWorkload,
    pub(super) contents: Option<Rc<Contents>>,
    pub(super) stopping: Cell<bool>,
    pub(super) recording: Cell<bool>,
    pub(super) window: RefCell<Window>,
    pub(super) completed: Cell<u64>,
    pub(super) last_completion_ns: Cell<u64>,
    pub(super) in_flight: Cell<u64>,
    pub(super) errors: Cell<u64>,
    pub(super) messages: RefCell<Vec<String>>,
    pub(super) moved_bytes: Rc<Cell<u64>>,
    pub(super) pulses: RefCell<Vec<Rc<Pulse>>>,
    /// Due time of the next request, for open loops.
    pub(super) next_due_ns: Cell<u64>,
    pub(super) arrival: Arrival,
    pub(super) think_ns: u64,
    pub(super) flush_every: u32,
    pub(super) fua_every: u32,
    pub(super) discards: bool,
    /// Remaining requests and bytes, if the load ends by itself.
    pub(super) requests_left: Cell<u64>,
    pub(super) bytes_left: Cell<u64>,
    /// Clock at the last yield of any task: a clock that stands still is advanced.
    pub(super) gave_way_ns: Cell<u64>,
}

/// Runs one request after another until the load stops.
pub(super) async fn keep_one_in_flight<T: Target>(
    shared: Rc<Shared<T>>,
    job: u32,
    cursor: JobCursor,
    mut random: SplitMix64,
) {
    let mut began_ns = shared.context.now_ns();
    let mut at_once = 0;
    let (mut unflushed, mut unforced) = (0, 0);
    while !shared.stopping.get() && shared.may_ask() {
        if let Some(due_ns) = shared.next_due(&mut random) {
            if !shared.wait_until(due_ns).await {
                break;
            }
            began_ns = if shared.counts_from_due() { due_ns } else { shared.context.now_ns() };
        }
        let choice = shared.workload.choose(&mut random, job, &cursor);
        shared.asks(choice.length_bytes);
        unforced += u32::from(!choice.is_read);
        let forced = shared.fua_every > 0 && unforced >= shared.fua_every && !choice.is_read;
        if forced {
            unforced = 0;
        }
        let (result, waited) = noting_waits(one_request(&shared, choice, forced)).await;
        shared.in_flight.set(shared.in_flight.get() - 1);
        let ended_ns = shared.context.now_ns();
        match result {
            Ok(()) => shared.record(choice, began_ns, ended_ns),
            Err(error) => {
                shared.note_error(&error);
                shared.context.sleep_ns(ERROR_PAUSE_NS).await;
            }
        }
        unflushed += u32::from(!choice.is_read);
        if shared.flush_every > 0 && unflushed >= shared.flush_every {
            unflushed = 0;
            if let Err(error) = shared.target.flush().await {
                shared.note_error(&error);
            }
        }
        if shared.think_ns > 0 {
            shared.context.sleep_ns(shared.think_ns).await;
        }
        at_once = if waited { 0 } else { at_once + 1 };
        if at_once == AT_ONCE_LIMIT {
            at_once = 0;
            shared.give_way(ended_ns).await;
        }
        began_ns = if waited && shared.think_ns == 0 && shared.flush_every == 0 {
            ended_ns
        } else {
            shared.context.now_ns()
        };
    }
}

async fn one_request<T: Target>(shared: &Shared<T>, choice: Choice, forced: bool) -> Result<(), T::Error> {
    let Choice { is_read, offset_bytes, length_bytes } = choice;
    if is_read {
        return shared.target.read(offset_bytes, length_bytes).await.map(drop);
    }
    let length = length_bytes as usize;
    if shared.discards {
        // Recorded before the request: even if it fails, the old contents may be gone.
        shared.contents.iter().for_each(|contents| contents.discarded(offset_bytes, length));
        return shared.target.discard(offset_bytes, length_bytes).await;
    }
    let buffer: Buffer = shared.target.buffers().allocate(length);
    shared.contents.iter().for_each(|contents| contents.write_begins(offset_bytes, &buffer));
    let result = match forced {
        true => shared.target.write_through(offset_bytes, buffer).await,
        false => shared.target.write(offset_bytes, buffer).await,
    };
    shared.contents.iter().for_each(|contents| contents.write_ended(offset_bytes, length, result.is_ok()));
    result
}

/// Returns a future's result, and `true` if it ever had to wait.
async fn noting_waits<F: Future>(future: F) -> (F::Output, bool) {
    let mut future = pin!(future);
    let mut waited = false;
    std::future::poll_fn(move |context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready((output, waited)),
        Poll::Pending => {
            waited = true;
            Poll::Pending
        }
    })
    .await
}

impl<T> Shared<T> {
    /// Due time of the next request of any task; `None` if requests follow answers.
    fn next_due(&self, random: &mut SplitMix64) -> Option<u64> {
        let gap_ns = match self.arrival {
            Arrival::Closed => return None,
            Arrival::Fixed(rate) | Arrival::Limited(rate) => 1e9 / rate,
            Arrival::Poisson(rate) => random.exponential(1e9 / rate),
        };
        let now_ns = self.context.now_ns();
        let due_ns = self.next_due_ns.get();
        // Unused capacity of a rate limit does not accumulate.
        let due_ns = if self.counts_from_due() { due_ns } else { due_ns.max(now_ns) };
        self.next_due_ns.set(due_ns.saturating_add((gap_ns as u64).max(1)));
        Some(due_ns)
    }

    /// True while a load that ends by itself continues.
    fn may_ask(&self) -> bool {
        self.requests_left.get() > 0 && self.bytes_left.get() > 0
    }

    fn asks(&self, length_bytes: u64) {
        self.in_flight.set(self.in_flight.get() + 1);
        self.requests_left.set(self.requests_left.get() - 1);
        self.bytes_left.set(self.bytes_left.get().saturating_sub(length_bytes));
    }

    /// True if a load that ends by itself has ended.
    pub(super) fn is_over(&self) -> bool {
        !self.may_ask() && self.in_flight.get() == 0
    }

    /// Open loops measure from the intended time; otherwise a slow answer would hide the requests
    /// that it delayed.
    fn counts_from_due(&self) -> bool {
        matches!(self.arrival, Arrival::Fixed(_) | Arrival::Poisson(_))
    }

    /// Waits until a request is due; returns `false` if the load ended before. Polls often enough
    /// to end soon.
    async fn wait_until(&self, due_ns: u64) -> bool {
        loop {
            let left_ns = due_ns.saturating_sub(self.context.now_ns());
            if self.stopping.get() {
                return false;
            }
            if left_ns == 0 {
                return true;
            }
            self.context.sleep_ns(left_ns.min(POLL_NS)).await;
        }
    }

    fn record(&self, choice: Choice, began_ns: u64, ended_ns: u64) {
        self.completed.set(self.completed.get() + 1);
        if self.recording.get() {
            let mut window = self.window.borrow_mut();
            let tally = if choice.is_read { &mut window.reads } else { &mut window.writes };
            tally.record(choice.length_bytes, ended_ns - began_ns);
            let gap_ns = ended_ns - self.last_completion_ns.get().max(window.start_ns);
            if gap_ns >= STALL_NS {
                window.stalled_ns += gap_ns;
            }
        }
        self.pulses.borrow().iter().for_each(|pulse| pulse.count(ended_ns - began_ns));
        self.last_completion_ns.set(ended_ns);
        self.moved_bytes.set(self.moved_bytes.get() + choice.length_bytes);
    }

    fn note_error(&self, error: &dyn std::error::Error) {
        self.errors.set(self.errors.get() + 1);
        let mut messages = self.messages.borrow_mut();
        if messages.len() < MESSAGES_KEPT {
            messages.push(error.to_string());
        }
    }

    /// Lets other tasks run. If no time passes at all (a target that answers at once, in virtual
    /// time), it sleeps for a microsecond; otherwise the load would never end.
    async fn give_way(&self, now_ns: u64) {
        if self.gave_way_ns.replace(now_ns) == now_ns {
            self.context.sleep_ns(1000).await;
        } else {
            yield_now().await;
        }
    }
}
