//! One drive as the engine uses it: a queue in front of it, its health, and the share that
//! background work gets.
//!
//! The queue does what a kernel's elevator does: requests that arrive in the same turn of the
//! executor, and requests that wait because the drive has all it can use, are merged with their
//! neighbours on the drive, whichever task issued them. A read of the very range that a waiting
//! read asked for gets a copy of what that one reads. Two classes share the drive by measured
//! service time: foreground (clients) and background (rebuild, scrub), so a rebuild at 30 % gets 30
//! % of the drive while there is other load and all of it when there is none. A third, upkeep, goes
//! before both and counts for neither.
//!
//! One flush is with the drive at a time; those that arrive before its completion are merged into
//! one, sent afterwards. So a flush that succeeds was not overtaken by one that failed and dropped
//! data that both should have made durable (`flush_losses.rs`).
//!
//! A drive that several threads use has a member on each of them (`again.rs`). What must be one is
//! shared (`common.rs`, `flush_turn.rs`): the drive's end, its errors, the flushes that it refused,
//! and the pace of background work.
//!
//! Faults expected: errors at places (a merged request that fails is split and each part asked
//! again), a drive that never answers (after a time-out the drive counts as failed and every waiter
//! gets an error), a drive that is gone, a flush that fails once.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;
use stripewise_drive::{
    Buffer, BufferPool, CauseTable, Completion, Context, Drive, DriveError, DriveErrorKind, DriveInfo, Event,
    IoRequest, IoResult, JoinHandle, Operation,
};

use crate::flush_losses::{FlushFailures, OnRefusedFlush};
use crate::tuning::Tuning;
use again::Elsewhere;
use common::{Common, Failure};
use dispatch::dispatch_loop;
use gate::Gate;
use opening::Opening;
use queue::Queue;
use slices::Slices;

pub(crate) mod again;
mod common;
mod dispatch;
mod flush_turn;
pub(crate) mod gate;
mod opening;
mod queue;
mod slices;
#[cfg(test)]
mod tests;

/// Class of a request's origin: clients, or a job that must leave them their share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Client reads and writes, and what they need.
    Foreground,
    /// Rebuild, scrub, resync.
    Background,
    /// Requests that both depend on: checksum pages, maps, flushes, the pool's records. They go
    /// first, are small, and count for neither: a rebuild that loads a page must not hold itself
    /// back as if a client had come.
    Upkeep,
}

/// Limits of a member's queue and of its patience.
#[derive(Clone, Copy, Debug)]
pub struct MemberOptions {
    /// A request without an answer for this long fails the drive.
    pub timeout_ns: u64,
    /// Medium errors on reads after which the drive is failed; the count halves every hour.
    pub max_read_errors: u32,
    /// Scattered segments of memory in one merged request ([`Tuning::merged_segments`]).
    pub merged_segments: usize,
    /// Threads that have a member of the drive: each member gets an equal part of its depth.
    pub threads: u32,
}

impl Default for MemberOptions {
    fn default() -> Self {
        Self {
            timeout_ns: 30_000_000_000,
            max_read_errors: 64,
            merged_segments: Tuning::default().merged_segments,
            threads: 1,
        }
    }
}

/// Read errors count half after this time.
const ERROR_HALF_LIFE_NS: u64 = 3_600_000_000_000;

/// Errors after which a drive does not come back by itself.
fn is_final(kind: DriveErrorKind) -> bool {
    matches!(kind, DriveErrorKind::Gone | DriveErrorKind::Cut | DriveErrorKind::Timeout)
}

/// Why a member is out of service, in words for people.
pub type FailReason = Arc<str>;

/// Label of a drive, as its member has it. The allocation names the member: another one of a drive
/// with the same label has another.
pub type MemberLabel = Arc<str>;

/// Counters of one member since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberCounters {
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes, flushes, discards that failed.
    pub write_errors: u64,
    /// Blocks that a scrub or a checksum found wrong on this drive.
    pub checksum_errors: u64,
    /// Requests given to the drive, after merging.
    pub requests: u64,
    /// Bytes read from the drive.
    pub read_bytes: u64,
    /// Bytes written to the drive.
    pub written_bytes: u64,
    /// Time the drive spent serving background requests, ns (see the module's words on service
    /// time).
    pub background_busy_ns: u64,
    /// Time the drive spent serving foreground and upkeep requests, ns.
    pub foreground_busy_ns: u64,
}

/// One drive of an array or pool, shared by all volumes on it.
pub struct Member {
    context: Context,
    /// Shared with the drive's members on other threads.
    common: Arc<Common>,
    opening: Arc<Opening>,
    info: DriveInfo,
    /// Part of the drive's depth.
    depth: Depth,
    /// `None` once it was let go of.
    drive: RefCell<Option<Rc<dyn Drive>>>,
    options: MemberOptions,
    queue: RefCell<Queue>,
    wakeup: Event,
    watching: Cell<bool>,
    gate: RefCell<Option<Rc<dyn Gate>>>,
    /// Members of the drive on other threads that end with this one.
    elsewhere: RefCell<Vec<Elsewhere>>,
    /// This thread's arrays on the drive: notified of a refused flush before anything else is read
    /// from it.
    on_refusal: RefCell<Vec<Weak<dyn OnRefusedFlush>>>,
    /// Number of refusals that they were notified of.
    told_refusals: Cell<u64>,
    unflushed: UnflushedWrites,
    dispatcher: RefCell<Option<JoinHandle<()>>>,
    stopped: Cell<bool>,
    /// The drive answers within `submit`: waiting for neighbours to merge with would only cost.
    answers_at_once: bool,
    /// Buffer for the bytes between two merged reads; no request looks at them.
    gap_buffer: Buffer,
}

/// Most requests and bytes that a member has in flight.
#[derive(Clone, Copy)]
struct Depth {
    requests: usize,
    bytes: u64,
}

/// Writes that a flush of this member may still have to make durable.
#[derive(Default)]
struct UnflushedWrites {
    /// Number that the drive acknowledged.
    written: Cell<u64>,
    /// Number when the flush in flight was sent.
    in_flush: Cell<u64>,
    /// Number that a good flush covered.
    flushed: Cell<u64>,
}

impl UnflushedWrites {
    fn is_any(&self) -> bool {
        self.written.get() != self.flushed.get()
    }
}

impl Member {
    /// Puts a queue in front of `drive`.
    pub fn new(context: &Context, drive: Rc<dyn Drive>, options: MemberOptions) -> Rc<Self> {
        let common = Common::new(Arc::from(&*drive.info().label), 0.3);
        Self::opened(context, drive, options, common)
    }

    /// A member of the drive with this state.
    fn opened(
        context: &Context,
        drive: Rc<dyn Drive>,
        options: MemberOptions,
        common: Arc<Common>,
    ) -> Rc<Self> {
        let answers_at_once = drive.info().kind == stripewise_drive::DriveKind::Memory;
        let gap_buffer = BufferPool::new(0).allocate(drive.info().gap_bytes as usize);
        let threads = options.threads.max(1);
        let depth = Depth {
            requests: (drive.info().queue_depth / threads).max(1) as usize,
            bytes: drive.info().queue_bytes / u64::from(threads),
        };
        let member = Rc::new(Self {
            context: context.clone(),
            opening: common.open(),
            told_refusals: Cell::new(common.flush_failures.count()),
            common,
            info: drive.info().clone(),
            depth,
            drive: RefCell::new(Some(drive)),
            options,
            queue: RefCell::default(),
            wakeup: Event::new(),
            watching: Cell::new(false),
            gate: RefCell::new(None),
            elsewhere: RefCell::default(),
            on_refusal: RefCell::default(),
            unflushed: UnflushedWrites::default(),
            dispatcher: RefCell::new(None),
            stopped: Cell::new(false),
            answers_at_once,
            gap_buffer,
        });
        let task = dispatch_loop(Rc::downgrade(&member));
        *member.dispatcher.borrow_mut() = Some(context.spawn(task));
        member
    }

    /// Identity and geometry of the drive.
    pub fn info(&self) -> &DriveInfo {
        &self.info
    }

    /// Lets go of the drive, so that it can be closed, pulled, or given back under the same name.
    /// To be called when the member has failed or was stopped: it answers "gone" from now on. The
    /// members on other threads that end with this one do so first.
    pub fn release(&self) {
        drop(self.elsewhere.take());
        // Dropped outside the borrow: closing a drive may run code of its own.
        let drive = self.drive.borrow_mut().take();
        drop(drive);
    }

    /// The drive behind the queue, past which nothing is to be written; `None` once it was let go
    /// of.
    pub fn drive(&self) -> Option<Rc<dyn Drive>> {
        self.drive.borrow().clone()
    }

    /// True if this very drive is behind the queue.
    pub fn is_of(&self, drive: &Rc<dyn Drive>) -> bool {
        self.drive.borrow().as_ref().is_some_and(|own| Rc::ptr_eq(own, drive))
    }

    fn ask(&self, request: IoRequest) -> Completion {
        match &*self.drive.borrow() {
            Some(drive) => drive.submit(request),
            None => Completion::ready(Err(self.gone(&request))),
        }
    }

    /// Label of the drive.
    pub fn label(&self) -> &MemberLabel {
        &self.common.label
    }

    /// True if the error came from this member.
    pub(crate) fn gave(&self, error: &DriveError) -> bool {
        Arc::ptr_eq(self.label(), &error.drive)
    }

    /// The drive's answer as this member gives it on.
    fn own(&self, result: IoResult) -> IoResult {
        result.map_err(|error| {
            let error = DriveError { drive: self.label().clone(), ..error };
            self.common.flush_failures.note(&error);
            if error.operation == Operation::Flush {
                self.common.call_others(&self.opening);
            }
            error
        })
    }

    /// The flushes that the drive has refused.
    pub fn flush_failures(&self) -> &FlushFailures {
        &self.common.flush_failures
    }

    /// Registers an array for notification of refused flushes.
    pub(crate) fn tell_of_refusals(&self, array: Weak<dyn OnRefusedFlush>) {
        let mut told = self.on_refusal.borrow_mut();
        told.retain(|array| array.strong_count() > 0);
        told.push(array);
    }

    /// Notifies this thread's arrays of refused flushes that they were not notified of. The drive
    /// may have dropped its cache: no array may read what it lost.
    fn tell_of_news(&self) {
        let failures = &self.common.flush_failures;
        let Some(error) = failures.since(self.told_refusals.get()) else { return };
        self.told_refusals.set(failures.count());
        let arrays: SmallVec<[_; 4]> = self.on_refusal.borrow().iter().filter_map(Weak::upgrade).collect();
        arrays.iter().for_each(|array| array.flush_was_refused(&error));
    }

    /// Makes durable what was written to the drive since it had refused `failures` flushes; an
    /// error where it has refused one since, whichever caller asked for it.
    pub async fn flush_since(self: &Rc<Self>, failures: u64) -> IoResult {
        self.submit(Class::Upkeep, IoRequest::flush()).await?;
        self.common.flush_failures.since(failures).map_or(Ok(()), Err)
    }

    /// Counters since opening, of the drive's members on all threads.
    pub fn counters(&self) -> MemberCounters {
        self.common.counters()
    }

    /// Requests to the drive since opening, by cause, of its members on all threads.
    pub fn causes(&self) -> CauseTable {
        self.common.causes()
    }

    /// Counts errors from none again; requests and bytes go on.
    pub fn forget_errors(&self) {
        self.common.errors.forget();
    }

    /// Counts blocks found wrong on this drive.
    pub fn count_checksum_errors(&self, blocks: u64) {
        self.common.errors.checksum.fetch_add(blocks, Ordering::Relaxed);
    }

    /// Share of the drive's time for background requests while clients want it, 0.01 to 1; on all
    /// threads together.
    pub fn set_background_share(&self, share: f64) {
        self.common.set_background_share(share.clamp(0.01, 1.0));
    }

    /// Share of the drive's time for background requests while clients want it.
    pub fn background_share(&self) -> f64 {
        self.common.background_share()
    }

    /// Has background requests go in slices that are no longer than this, so that they add no more
    /// than that to what a client's request waits for the drive. `None`: no slices.
    pub fn set_background_slice(&self, bound_ns: Option<u64>) {
        self.common.set_slice_ns(bound_ns);
        self.take_over_slice(&mut self.queue.borrow_mut());
    }

    /// Takes over the length of slices that was set for all threads.
    fn take_over_slice(&self, queue: &mut Queue) {
        let bound_ns = self.common.slice_ns();
        if queue.slices.as_ref().map(Slices::bound_ns) != bound_ns {
            queue.slices = bound_ns.map(Slices::new);
        }
    }

    /// Why the member is out of service, if it is.
    pub fn failed(&self) -> Option<FailReason> {
        self.common.failure().map(|failure| failure.reason.clone())
    }

    /// True if the member is out of service.
    pub fn is_failed(&self) -> bool {
        self.common.failure().is_some()
    }

    /// True if it failed because the drive is gone, rather than because of an error it returned.
    pub fn was_pulled(&self) -> bool {
        self.common.failure().is_some_and(|failure| failure.was_pulled)
    }

    /// Takes the member out of service because of an error.
    pub(crate) fn fail_with(&self, error: &DriveError) {
        self.fail_as(&error.to_string(), error.kind == DriveErrorKind::Gone);
    }

    /// As [`Self::fail`], for a drive that is not there any more.
    pub fn fail_as_pulled(&self, reason: &str) {
        self.fail_as(reason, true);
    }

    /// Takes the drive out of service, on all threads: everything waiting or in flight is answered
    /// "gone", later requests too.
    pub fn fail(&self, reason: &str) {
        self.fail_as(reason, false);
    }

    fn fail_as(&self, reason: &str, was_pulled: bool) {
        if self.common.fail(Failure { reason: Arc::from(reason), was_pulled }) {
            self.answer_all();
            self.common.call_others(&self.opening);
        }
    }

    /// Answers "gone" to all that waits or is in flight.
    fn answer_all(&self) {
        let (waiting, flights, flushes) = {
            let mut queue = self.queue.borrow_mut();
            let mut waiting = Vec::new();
            for class in [Class::Foreground, Class::Background, Class::Upkeep] {
                let own = queue.of(class);
                waiting.extend(own.drain());
                own.in_flight = 0;
            }
            queue.in_flight_bytes = 0;
            queue.answers.clear();
            queue.held.clear();
            (waiting, queue.flights.drain().collect::<Vec<_>>(), queue.flushes.drain())
        };
        for pending in waiting.into_iter().chain(flights.into_iter().flat_map(|flight| flight.parts)) {
            let error = self.gone(&pending.request);
            pending.answer(&Err(error));
        }
        for sender in flushes {
            sender.complete(Err(self.gone(&IoRequest::flush())));
        }
        self.common.flush_turn.leave(&self.opening);
    }

    /// Ends the queue's tasks; to be called when the last request has been answered.
    pub fn stop(&self) {
        self.stopped.set(true);
        self.wakeup.notify_all();
    }

    fn gone(&self, request: &IoRequest) -> DriveError {
        request.error(self.label(), DriveErrorKind::Gone, None)
    }

    /// Counts a failed read. Fails the drive when it is gone or, where the array can `spare` it,
    /// after too many errors of late.
    pub fn note_read_error(&self, error: &DriveError, spare: bool) {
        self.common.errors.read.fetch_add(1, Ordering::Relaxed);
        let count = self.common.count_read_error(self.context.now_ns(), ERROR_HALF_LIFE_NS);
        if is_final(error.kind) {
            self.fail_with(error);
        } else if spare && count > f64::from(self.options.max_read_errors) {
            self.fail(&format!("too many read errors ({} of late), the last: {error}", count.round()));
        }
    }

    /// True if the drive remains usable after an error: it is neither failed nor gone.
    pub(crate) fn is_still_there_after(&self, error: &DriveError) -> bool {
        !self.is_failed() && !is_final(error.kind)
    }

    /// Counts a failed write. Where the array can `spare` the drive, one is enough to fail it: what
    /// it holds there is no longer known.
    pub fn note_write_error(&self, error: &DriveError, spare: bool) {
        self.common.errors.write.fetch_add(1, Ordering::Relaxed);
        if spare || is_final(error.kind) {
            self.fail_with(error);
        }
    }

    /// True if a client's request is queued or in flight.
    pub(crate) fn serves_clients(&self) -> bool {
        let state = self.queue.borrow();
        let clients = &state.all()[Class::Foreground as usize];
        clients.length + clients.in_flight > 0
    }

    /// Requests waiting and in flight, for choosing the less busy copy.
    pub fn load(&self) -> usize {
        self.queue.borrow().all().iter().map(|queue| queue.length + queue.in_flight).sum()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.common.flush_turn.leave(&self.opening);
        self.opening.note_no_load(0);
        self.opening.set_dispatcher(None);
    }
}
