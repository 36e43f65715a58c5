//! One drive as the engine uses it: a queue in front of it, its health, and the share that
//! background work gets.
//!
//! The queue does what a kernel's elevator does: requests that arrive in the same turn of the
//! executor, and requests that wait because the drive has all it can use, are merged with their
//! neighbours on the drive, whoever issued them. Two classes share the drive by measured service
//! time: foreground (clients) and background (rebuild, scrub), so a rebuild at 30 % gets 30 % of
//! the drive while there is other load and all of it when there is none. A third, upkeep, goes
//! before both and is nobody's load.
//!
//! One flush is with the drive at a time; those that come meanwhile are one flush together, sent
//! when it was answered. So a flush that succeeds was not overtaken by one that failed and dropped
//! what both should have made durable (`flush_losses.rs`).
//!
//! Faults expected: errors at places (a merged request that fails is split and each part asked
//! again), a drive that never answers (after a time-out the drive counts as failed and every waiter
//! is told), a drive that is gone, a flush that fails once.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

use slab::Slab;
use smallvec::SmallVec;
use stripewise_drive::{
    Buffer, BufferPool, Cause, CauseMeter, CauseTable, Completion, CompletionListener, CompletionSender,
    Context, Drive, DriveError, DriveErrorKind, DriveInfo, Event, IoRequest, IoResult, JoinHandle, Operation,
    completion,
};

use crate::flush_losses::{FlushFailures, OnRefusedFlush};
use crate::tuning::Tuning;

/// Who asks: clients, or a job that must leave them their share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Client reads and writes, and what they need.
    Foreground,
    /// Rebuild, scrub, resync.
    Background,
    /// What both need before they can go on: checksum pages, maps, flushes, the pool's records.
    /// Goes first, is small, and counts as nobody's load: a rebuild that loads a page must not hold
    /// itself back as if a client had come.
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
}

impl Default for MemberOptions {
    fn default() -> Self {
        Self {
            timeout_ns: 30_000_000_000,
            max_read_errors: 64,
            merged_segments: Tuning::default().merged_segments,
        }
    }
}

/// A client that sends its next request when it has the answer to the last is still load in
/// between: background work that is ahead of its share waits this long for it.
const ANTICIPATION_NS: u64 = 2_000_000;
/// Service time that a class keeps as credit while it has nothing to ask for: covers the gaps of a
/// rebuild that waits for other drives, yet a long idle time is not saved up.
const CREDIT_NS: f64 = 50_000_000.0;
/// Looks at what has no answer yet: bounds both the delay of the verdict and the cost of watching.
const LOOKS_PER_TIMEOUT: u64 = 4;
/// Read errors count half after this time.
const ERROR_HALF_LIFE_NS: u64 = 3_600_000_000_000;

struct Pending {
    request: IoRequest,
    sender: CompletionSender,
    /// Asked again after a merged request failed: must not be merged again.
    alone: bool,
}

/// How large a merged request becomes.
#[derive(Clone, Copy)]
struct MergeLimits {
    max_bytes: u64,
    /// Between reads that are merged.
    gap_bytes: u64,
    /// Scattered segments of memory.
    max_segments: usize,
}

#[derive(Default)]
struct ClassQueue {
    /// Keys into `waiting`, oldest first; a key whose entry was merged away is skipped.
    order: VecDeque<usize>,
    waiting: Slab<Option<Pending>>,
    /// Mergeable requests by kind and by where they start and end on the drive.
    by_start: BTreeMap<(u8, u64), usize>,
    by_end: BTreeMap<(u8, u64), usize>,
    length: usize,
    in_flight: usize,
    /// Service time received divided by weight: the class that is behind goes first.
    virtual_ns: f64,
    /// Expected service time of one dispatched request, a moving average.
    expected_ns: f64,
}

impl ClassQueue {
    fn push(&mut self, pending: Pending) {
        let request = &pending.request;
        let (operation, start, end) = (request.operation, request.offset_bytes, request.end_bytes());
        let kind = merge_kind(operation).filter(|_| !pending.alone);
        let key = self.waiting.insert(Some(pending));
        if let Some(kind) = kind {
            self.by_start.entry((kind, start)).or_insert(key);
            self.by_end.entry((kind, end)).or_insert(key);
        }
        self.order.push_back(key);
        self.length += 1;
    }

    /// Takes an entry out; its key stays in `order` until it is skipped there.
    fn take(&mut self, key: usize) -> Pending {
        let pending = self.waiting[key].take().expect("taken once");
        let request = &pending.request;
        if let Some(kind) = merge_kind(request.operation) {
            for (map, at) in
                [(&mut self.by_start, request.offset_bytes), (&mut self.by_end, request.end_bytes())]
            {
                if map.get(&(kind, at)) == Some(&key) {
                    map.remove(&(kind, at));
                }
            }
        }
        self.length -= 1;
        pending
    }

    fn pop_oldest(&mut self) -> Option<Pending> {
        while let Some(key) = self.order.pop_front() {
            let taken = self.waiting[key].is_some().then(|| self.take(key));
            self.waiting.remove(key);
            if taken.is_some() {
                return taken;
            }
        }
        None
    }

    /// The oldest request with all waiting neighbours on the drive that fit into one request, in
    /// drive order. Reads count as neighbours across a hole of up to `gap_bytes`.
    fn pop_merged(&mut self, limits: MergeLimits) -> Option<SmallVec<[Pending; 4]>> {
        let MergeLimits { max_bytes, gap_bytes, max_segments } = limits;
        let oldest = self.pop_oldest()?;
        let kind = merge_kind(oldest.request.operation).filter(|_| !oldest.alone);
        let gap_bytes = if oldest.request.operation == Operation::Read { gap_bytes } else { 0 };
        let mut segments = oldest.request.segments.len();
        let (mut start, mut end) = (oldest.request.offset_bytes, oldest.request.end_bytes());
        let mut parts: SmallVec<[Pending; 4]> = SmallVec::from_iter([oldest]);
        let Some(kind) = kind else { return Some(parts) };
        let mut before: SmallVec<[Pending; 4]> = SmallVec::new();
        loop {
            let after = self.by_start.range((kind, end)..=(kind, end + gap_bytes)).next();
            let ahead =
                || self.by_end.range((kind, start.saturating_sub(gap_bytes))..=(kind, start)).next_back();
            let (key, forward) = match (after, after.is_none().then(ahead).flatten()) {
                (Some((_, &key)), _) => (key, true),
                (None, Some((_, &key))) => (key, false),
                (None, None) => break,
            };
            let next = &self.waiting[key].as_ref().expect("indexed entries are waiting").request;
            let span = end.max(next.end_bytes()) - start.min(next.offset_bytes);
            if span > max_bytes || segments + next.segments.len() + 1 > max_segments {
                break;
            }
            segments += next.segments.len() + 1;
            let next = self.take(key);
            if forward {
                end = next.request.end_bytes();
                parts.push(next);
            } else {
                start = next.request.offset_bytes;
                before.push(next);
            }
        }
        if !before.is_empty() {
            before.reverse();
            before.extend(parts);
            parts = before;
        }
        Some(parts)
    }

    fn drain(&mut self) -> Vec<Pending> {
        std::iter::from_fn(|| self.pop_oldest()).collect()
    }
}

/// Errors after which a drive does not come back by itself.
fn is_final(kind: DriveErrorKind) -> bool {
    matches!(kind, DriveErrorKind::Gone | DriveErrorKind::Timeout)
}

/// Requests of one kind can become one; `None` for those that cannot.
fn merge_kind(operation: Operation) -> Option<u8> {
    match operation {
        Operation::Read => Some(0),
        Operation::Write { fua: false } => Some(1),
        Operation::Write { fua: true } => Some(2),
        Operation::WriteZeroes => Some(3),
        Operation::Flush | Operation::Discard => None,
    }
}

/// A request (merged or not) that the drive has.
struct Flight {
    parts: SmallVec<[Pending; 4]>,
    class: Class,
    bytes: u64,
    dispatched_ns: u64,
    charged_ns: f64,
    serial: u64,
}

struct Queue {
    foreground: ClassQueue,
    background: ClassQueue,
    upkeep: ClassQueue,
    flights: Slab<Flight>,
    in_flight_bytes: u64,
    last_completion_ns: u64,
    last_foreground_ns: u64,
    next_serial: u64,
    answers: Vec<(u64, IoResult)>,
    flushes: FlushQueue,
}

/// The flushes of a drive: one is with it, or waits in the queue; the others wait for that one to
/// end.
#[derive(Default)]
struct FlushQueue {
    is_under_way: bool,
    /// Those that the one under way answers, too.
    joined: Vec<CompletionSender>,
    /// Those that came after it was sent.
    waiting: Vec<CompletionSender>,
}

impl FlushQueue {
    /// The flush under way was answered: who else gets that answer, and the flush to be sent next.
    fn landed(&mut self) -> (Vec<CompletionSender>, Option<Pending>) {
        let joined = std::mem::take(&mut self.joined);
        let mut next = std::mem::take(&mut self.waiting).into_iter();
        let first = next.next();
        self.is_under_way = first.is_some();
        self.joined = next.collect();
        let flush = |sender| Pending { request: IoRequest::flush(), sender, alone: true };
        (joined, first.map(flush))
    }

    /// All that are not in the queue themselves.
    fn drain(&mut self) -> Vec<CompletionSender> {
        let Self { joined, waiting, .. } = std::mem::take(self);
        joined.into_iter().chain(waiting).collect()
    }
}

impl Queue {
    fn of(&mut self, class: Class) -> &mut ClassQueue {
        match class {
            Class::Foreground => &mut self.foreground,
            Class::Background => &mut self.background,
            Class::Upkeep => &mut self.upkeep,
        }
    }

    fn all(&self) -> [&ClassQueue; 3] {
        [&self.foreground, &self.background, &self.upkeep]
    }

    fn requests_in_flight(&self) -> usize {
        self.all().iter().map(|queue| queue.in_flight).sum()
    }
}

/// Why a member is out of service, in words for people.
pub type FailReason = Rc<str>;

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
    /// The drive's label, in memory of this member's own: every error that it gives carries this
    /// very one, so that whose error it is can be told even when another drive of the same name has
    /// taken its place.
    label: Rc<str>,
    info: DriveInfo,
    /// `None` once it was let go of.
    drive: RefCell<Option<Rc<dyn Drive>>>,
    options: MemberOptions,
    queue: RefCell<Queue>,
    causes: CauseMeter,
    wakeup: Event,
    watching: Cell<bool>,
    background_share: Cell<f64>,
    failed: RefCell<Option<FailReason>>,
    /// It failed because the drive is not there any more.
    was_pulled: Cell<bool>,
    /// Notified when the member fails.
    failure: Event,
    counters: Cell<MemberCounters>,
    flush_failures: FlushFailures,
    /// The arrays on the drive: told of a refused flush before anything else is read from it.
    on_refusal: RefCell<Vec<Weak<dyn OnRefusedFlush>>>,
    recent_read_errors: Cell<(f64, u64)>,
    dispatcher: RefCell<Option<JoinHandle<()>>>,
    stopped: Cell<bool>,
    /// The drive answers within `submit`: waiting for neighbours to merge with would only cost.
    answers_at_once: bool,
    /// Where bytes go that are read over because they lie between two requests; nobody looks at
    /// them.
    ditch: Buffer,
}

impl Member {
    /// Puts a queue in front of `drive`.
    pub fn new(context: &Context, drive: Rc<dyn Drive>, options: MemberOptions) -> Rc<Self> {
        let answers_at_once = drive.info().kind == stripewise_drive::DriveKind::Memory;
        let ditch = BufferPool::new(0).allocate(drive.info().gap_bytes as usize);
        let member = Rc::new(Self {
            context: context.clone(),
            label: Rc::from(&*drive.info().label),
            info: drive.info().clone(),
            drive: RefCell::new(Some(drive)),
            options,
            queue: RefCell::new(Queue {
                foreground: ClassQueue::default(),
                background: ClassQueue::default(),
                upkeep: ClassQueue::default(),
                flights: Slab::new(),
                in_flight_bytes: 0,
                last_completion_ns: 0,
                last_foreground_ns: 0,
                next_serial: 0,
                answers: Vec::new(),
                flushes: FlushQueue::default(),
            }),
            causes: CauseMeter::default(),
            wakeup: Event::new(),
            watching: Cell::new(false),
            background_share: Cell::new(0.3),
            failed: RefCell::new(None),
            was_pulled: Cell::new(false),
            failure: Event::new(),
            counters: Cell::default(),
            flush_failures: FlushFailures::default(),
            on_refusal: RefCell::default(),
            recent_read_errors: Cell::new((0.0, 0)),
            dispatcher: RefCell::new(None),
            stopped: Cell::new(false),
            answers_at_once,
            ditch,
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
    /// To be called when the member has failed or was stopped: it answers "gone" from now on.
    pub fn release(&self) {
        // Dropped outside the borrow: closing a drive may run code of its own.
        let drive = self.drive.borrow_mut().take();
        drop(drive);
    }

    /// The drive behind the queue, past which nothing is to be written; `None` once it was let go
    /// of.
    pub(crate) fn drive(&self) -> Option<Rc<dyn Drive>> {
        self.drive.borrow().clone()
    }

    /// Whether this very drive is behind the queue.
    pub fn is_of(&self, drive: &Rc<dyn Drive>) -> bool {
        self.drive.borrow().as_ref().is_some_and(|own| Rc::ptr_eq(own, drive))
    }

    fn ask(&self, request: IoRequest) -> Completion {
        match &*self.drive.borrow() {
            Some(drive) => drive.submit(request),
            None => Completion::ready(Err(self.gone(&request))),
        }
    }

    /// What people call the drive.
    pub fn label(&self) -> &Rc<str> {
        &self.label
    }

    /// Whether the error came from this member.
    pub(crate) fn gave(&self, error: &DriveError) -> bool {
        Rc::ptr_eq(&self.label, &error.drive)
    }

    /// The drive's answer as this member gives it on.
    fn own(&self, result: IoResult) -> IoResult {
        result.map_err(|error| {
            let error = DriveError { drive: self.label.clone(), ..error };
            self.flush_failures.note(&error);
            error
        })
    }

    /// The flushes that the drive has refused.
    pub(crate) fn flush_failures(&self) -> &FlushFailures {
        &self.flush_failures
    }

    /// Has an array told of the flushes that the drive refuses.
    pub(crate) fn tell_of_refusals(&self, array: Weak<dyn OnRefusedFlush>) {
        let mut told = self.on_refusal.borrow_mut();
        told.retain(|array| array.strong_count() > 0);
        told.push(array);
    }

    /// The drive may have dropped its cache: no array may read what it lost.
    fn tell_if_flush_was_refused(&self, result: &IoResult) {
        let Err(error) = result else { return };
        if error.operation == Operation::Flush {
            let arrays: SmallVec<[_; 4]> =
                self.on_refusal.borrow().iter().filter_map(Weak::upgrade).collect();
            arrays.iter().for_each(|array| array.flush_was_refused(error));
        }
    }

    /// Makes durable what was written to the drive since it had refused `failures` flushes; an
    /// error where it has refused one since, whichever caller asked for it.
    pub(crate) async fn flush_since(self: &Rc<Self>, failures: u64) -> IoResult {
        self.submit(Class::Upkeep, IoRequest::flush()).await?;
        self.flush_failures.since(failures).map_or(Ok(()), Err)
    }

    /// Counters since opening.
    pub fn counters(&self) -> MemberCounters {
        self.counters.get()
    }

    /// What the drive was asked since opening, by what for.
    pub fn causes(&self) -> CauseTable {
        self.causes.table()
    }

    fn count(&self, change: impl FnOnce(&mut MemberCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// Counts errors from none again; requests and bytes go on.
    pub fn forget_errors(&self) {
        self.count(|counters| {
            (counters.read_errors, counters.write_errors, counters.checksum_errors) = (0, 0, 0);
        });
    }

    /// Counts blocks found wrong on this drive.
    pub fn count_checksum_errors(&self, blocks: u64) {
        self.count(|counters| counters.checksum_errors += blocks);
    }

    /// Share of the drive's time for background requests while clients want it, 0.01 to 1.
    pub fn set_background_share(&self, share: f64) {
        self.background_share.set(share.clamp(0.01, 1.0));
    }

    /// Why the member is out of service, if it is.
    pub fn failed(&self) -> Option<FailReason> {
        self.failed.borrow().clone()
    }

    /// Whether the member is out of service.
    pub fn is_failed(&self) -> bool {
        self.failed.borrow().is_some()
    }

    /// Whether it failed because the drive is not there any more, rather than because of what it
    /// answered.
    pub fn was_pulled(&self) -> bool {
        self.was_pulled.get()
    }

    /// Takes the member out of service because of an error.
    pub(crate) fn fail_with(&self, error: &DriveError) {
        if !self.is_failed() {
            self.was_pulled.set(error.kind == DriveErrorKind::Gone);
        }
        self.fail(&error.to_string());
    }

    /// As [`Self::fail`], for a drive that is not there any more.
    pub fn fail_as_pulled(&self, reason: &str) {
        if !self.is_failed() {
            self.was_pulled.set(true);
        }
        self.fail(reason);
    }

    /// Takes the member out of service: everything waiting or in flight is answered "gone", later
    /// requests too.
    pub fn fail(&self, reason: &str) {
        if self.is_failed() {
            return;
        }
        *self.failed.borrow_mut() = Some(Rc::from(reason));
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
            (waiting, queue.flights.drain().collect::<Vec<_>>(), queue.flushes.drain())
        };
        for pending in waiting.into_iter().chain(flights.into_iter().flat_map(|flight| flight.parts)) {
            let error = self.gone(&pending.request);
            pending.sender.complete(Err(error));
        }
        for sender in flushes {
            sender.complete(Err(self.gone(&IoRequest::flush())));
        }
        self.failure.notify_all();
    }

    /// Ends when the member next fails.
    pub async fn until_failed(&self) {
        while !self.is_failed() {
            self.failure.wait().await;
        }
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
        self.count(|counters| counters.read_errors += 1);
        let now = self.context.now_ns();
        let (count, since) = self.recent_read_errors.get();
        let halvings = now.saturating_sub(since) as f64 / ERROR_HALF_LIFE_NS as f64;
        let count = count * 0.5f64.powf(halvings) + 1.0;
        self.recent_read_errors.set((count, now));
        if is_final(error.kind) {
            self.fail_with(error);
        } else if spare && count > f64::from(self.options.max_read_errors) {
            self.fail(&format!("too many read errors ({} of late), the last: {error}", count.round()));
        }
    }

    /// Whether the drive works on after an error: it is neither failed nor gone.
    pub(crate) fn is_still_there_after(&self, error: &DriveError) -> bool {
        !self.is_failed() && !is_final(error.kind)
    }

    /// Counts a failed write. Where the array can `spare` the drive, one is enough to fail it: what
    /// it holds there is no longer known.
    pub fn note_write_error(&self, error: &DriveError, spare: bool) {
        self.count(|counters| counters.write_errors += 1);
        if spare || is_final(error.kind) {
            self.fail_with(error);
        }
    }

    /// Requests waiting and in flight, for choosing the less busy copy.
    pub fn load(&self) -> usize {
        self.queue.borrow().all().iter().map(|queue| queue.length + queue.in_flight).sum()
    }

    /// Asks the drive, now or as soon as its queue allows.
    pub fn submit(self: &Rc<Self>, class: Class, mut request: IoRequest) -> Completion {
        if request.cause == Cause::Data {
            request.cause = match class {
                Class::Foreground => Cause::Data,
                Class::Background => Cause::Job,
                Class::Upkeep => Cause::Record,
            };
        }
        if self.is_failed() {
            return Completion::ready(Err(self.gone(&request)));
        }
        if request.operation == Operation::Flush {
            let mut queue = self.queue.borrow_mut();
            if queue.flushes.is_under_way {
                let (sender, completion) = completion();
                queue.flushes.waiting.push(sender);
                return completion;
            }
            queue.flushes.is_under_way = !self.answers_at_once;
        }
        if self.answers_at_once {
            return self.submit_directly(class, request);
        }
        let (sender, completion) = completion();
        {
            let mut queue = self.queue.borrow_mut();
            let other_ns = match class {
                Class::Foreground => queue.background.virtual_ns,
                Class::Background => queue.foreground.virtual_ns,
                Class::Upkeep => f64::NEG_INFINITY,
            };
            let own = queue.of(class);
            if own.length == 0 && own.in_flight == 0 {
                own.virtual_ns = own.virtual_ns.max(other_ns - CREDIT_NS);
            }
            own.push(Pending { request, sender, alone: false });
        }
        self.wakeup.notify_all();
        completion
    }

    fn submit_directly(self: &Rc<Self>, class: Class, request: IoRequest) -> Completion {
        self.count_request(&request);
        let kept = request.clone();
        let answer = match self.ask(request).try_take() {
            Ok(result) => {
                let result = self.own(result);
                self.tell_if_flush_was_refused(&result);
                return Completion::ready(result);
            }
            Err(pending) => pending,
        };
        // A fault machine around memory may answer late; then it is watched as any other drive is.
        let (sender, completion) = completion();
        if kept.operation == Operation::Flush {
            self.queue.borrow_mut().flushes.is_under_way = true;
        }
        let parts = SmallVec::from_iter([Pending { request: kept, sender, alone: true }]);
        let token = self.take_off(class, parts);
        if let Some(result) = answer.notify(self.clone(), token) {
            self.completed(token, result);
        }
        completion
    }

    fn count_request(&self, request: &IoRequest) {
        self.causes.note(request);
        self.count(|counters| {
            counters.requests += 1;
            match request.operation {
                Operation::Read => counters.read_bytes += request.length_bytes,
                Operation::Write { .. } => counters.written_bytes += request.length_bytes,
                _ => {}
            }
        });
    }

    fn take_off(self: &Rc<Self>, class: Class, parts: SmallVec<[Pending; 4]>) -> u64 {
        let now = self.context.now_ns();
        let bytes = parts.iter().map(|part| part.request.length_bytes).sum();
        let token = {
            let mut queue = self.queue.borrow_mut();
            let weight = self.weight(class);
            let own = queue.of(class);
            let charged_ns = own.expected_ns / weight;
            own.virtual_ns += charged_ns;
            own.in_flight += 1;
            queue.in_flight_bytes += bytes;
            let serial = queue.next_serial;
            queue.next_serial += 1;
            let key =
                queue.flights.insert(Flight { parts, class, bytes, dispatched_ns: now, charged_ns, serial });
            token_of(key, serial)
        };
        if !self.watching.replace(true) {
            self.context.spawn(watch_loop(Rc::downgrade(self), self.context.clone()));
        }
        token
    }

    /// What a class's service time is divided by to tell who is behind.
    fn weight(&self, class: Class) -> f64 {
        match class {
            Class::Foreground => 1.0 - self.background_share.get() + 1e-9,
            Class::Background => self.background_share.get(),
            Class::Upkeep => 1.0,
        }
    }

    /// Which class may send its next request now.
    fn next_class(&self, queue: &Queue) -> Option<Class> {
        let info = &self.info;
        let flights = queue.requests_in_flight();
        if flights >= info.queue_depth as usize || (flights > 0 && queue.in_flight_bytes >= info.queue_bytes)
        {
            return None;
        }
        if queue.upkeep.length > 0 {
            return Some(Class::Upkeep);
        }
        let foreground = queue.foreground.length > 0;
        if queue.background.length == 0 {
            return foreground.then_some(Class::Foreground);
        }
        let behind = queue.background.virtual_ns <= queue.foreground.virtual_ns;
        if behind || self.load_ends_in_ns(queue) == Some(0) {
            return Some(Class::Background);
        }
        foreground.then_some(Class::Foreground)
    }

    /// Time until the drive counts as free of foreground load; `None` while foreground requests are
    /// there.
    fn load_ends_in_ns(&self, queue: &Queue) -> Option<u64> {
        if queue.foreground.length > 0 || queue.foreground.in_flight > 0 {
            return None;
        }
        Some((queue.last_foreground_ns + ANTICIPATION_NS).saturating_sub(self.context.now_ns()))
    }

    /// How long background work that could go now has to be held back, if it has.
    fn background_held_ns(&self) -> Option<u64> {
        let queue = self.queue.borrow();
        (queue.background.length > 0).then(|| self.load_ends_in_ns(&queue)).flatten().filter(|&wait| wait > 0)
    }

    fn dispatch(self: &Rc<Self>) {
        let DriveInfo { max_request_bytes: max_bytes, gap_bytes, .. } = self.info;
        let limits = MergeLimits { max_bytes, gap_bytes, max_segments: self.options.merged_segments };
        loop {
            let (class, parts) = {
                let mut queue = self.queue.borrow_mut();
                let Some(class) = self.next_class(&queue) else { return };
                let Some(parts) = queue.of(class).pop_merged(limits) else { return };
                (class, parts)
            };
            let request = merged_request(&parts, &self.ditch);
            self.count_request(&request);
            let token = self.take_off(class, parts);
            if let Some(result) = self.ask(request).notify(self.clone(), token) {
                self.queue.borrow_mut().answers.push((token, result));
                self.wakeup.notify_all();
            }
        }
    }

    fn land(&self) {
        let mut answers = std::mem::take(&mut self.queue.borrow_mut().answers);
        for (token, result) in answers.drain(..) {
            let result = self.own(result);
            self.land_one(token, &result);
            self.tell_if_flush_was_refused(&result);
        }
        let mut queue = self.queue.borrow_mut();
        if queue.answers.is_empty() {
            queue.answers = answers;
        }
    }

    fn land_one(&self, token: u64, result: &IoResult) {
        let now = self.context.now_ns();
        let flight = {
            let mut queue = self.queue.borrow_mut();
            let queue = &mut *queue;
            let key = key_of(token);
            // A late answer after the drive was failed, perhaps to a key in use again.
            if queue.flights.get(key).is_none_or(|flight| token_of(key, flight.serial) != token) {
                return;
            }
            let flight = queue.flights.remove(key);
            queue.in_flight_bytes -= flight.bytes;
            let service_ns = now.saturating_sub(queue.last_completion_ns.max(flight.dispatched_ns)) as f64;
            queue.last_completion_ns = now;
            if flight.class == Class::Foreground {
                queue.last_foreground_ns = now;
            }
            let (weight, own) = (self.weight(flight.class), queue.of(flight.class));
            own.in_flight -= 1;
            own.virtual_ns += service_ns / weight - flight.charged_ns;
            own.expected_ns += (service_ns - own.expected_ns) / 16.0;
            self.count(|counters| match flight.class {
                Class::Foreground | Class::Upkeep => counters.foreground_busy_ns += service_ns as u64,
                Class::Background => counters.background_busy_ns += service_ns as u64,
            });
            flight
        };
        if result.is_err() && flight.parts.len() > 1 {
            // Which of the merged parts is at fault is not known: ask for each alone.
            let mut queue = self.queue.borrow_mut();
            let own = queue.of(flight.class);
            for part in flight.parts {
                own.push(Pending { alone: true, ..part });
            }
            return;
        }
        let is_flush = flight.parts[0].request.operation == Operation::Flush;
        for part in flight.parts {
            part.sender.complete(result.clone());
        }
        if is_flush {
            self.flush_landed(result);
        }
    }

    /// Answers the flushes that went along, and sends the one that was waited for meanwhile.
    fn flush_landed(&self, result: &IoResult) {
        let joined = {
            let mut queue = self.queue.borrow_mut();
            let (joined, next) = queue.flushes.landed();
            if let Some(next) = next {
                queue.upkeep.push(next);
            }
            joined
        };
        joined.into_iter().for_each(|sender| sender.complete(result.clone()));
        self.wakeup.notify_all();
    }
}

impl CompletionListener for Member {
    fn completed(&self, token: u64, result: IoResult) {
        self.queue.borrow_mut().answers.push((token, result));
        self.wakeup.notify_all();
    }
}

fn token_of(key: usize, serial: u64) -> u64 {
    (serial << 20) | key as u64
}

fn key_of(token: u64) -> usize {
    (token & 0xF_FFFF) as usize
}

/// One request for all parts, in drive order. Holes between reads go into `ditch`.
fn merged_request(parts: &[Pending], ditch: &Buffer) -> IoRequest {
    let first = &parts[0].request;
    if parts.len() == 1 {
        return first.clone();
    }
    let mut merged = IoRequest { length_bytes: 0, segments: SmallVec::new(), ..*first };
    for part in parts {
        let hole = part.request.offset_bytes - merged.end_bytes();
        if hole > 0 {
            let phantom = part.request.segments[0].is_phantom();
            let hole = hole as usize;
            merged.segments.push(if phantom { Buffer::phantom(hole) } else { ditch.slice(0..hole) });
        }
        merged.length_bytes += hole + part.request.length_bytes;
        for segment in &part.request.segments {
            match merged.segments.last_mut() {
                Some(last) if last.is_followed_by(segment) => *last = last.joined_with(segment),
                _ => merged.segments.push(segment.clone()),
            }
        }
    }
    merged
}

/// Runs for the member's life: lands answers, dispatches what may go. Runs after the tasks that
/// submitted, so all that they asked for in this turn is there to be merged.
async fn dispatch_loop(member: Weak<Member>) {
    loop {
        let Some(strong) = member.upgrade() else { return };
        strong.land();
        strong.dispatch();
        if strong.stopped.get() {
            return;
        }
        let nothing_to_land = strong.queue.borrow().answers.is_empty();
        if nothing_to_land {
            match strong.background_held_ns() {
                None => strong.wakeup.wait().await,
                Some(wait_ns) => {
                    let wakeup = std::pin::pin!(strong.wakeup.wait());
                    let _ = strong.context.time_limit_ns(wait_ns, wakeup).await;
                }
            }
        }
    }
}

/// Runs while requests are in flight: fails the drive when the oldest got no answer in time. A
/// process that stood still (stopped, the machine asleep) may not have heard the answers yet: a
/// look that comes late leaves the verdict to the next one.
async fn watch_loop(member: Weak<Member>, context: Context) {
    let mut wanted_ns = context.now_ns();
    let mut was_put_off = false;
    loop {
        let wait_ns = {
            let Some(strong) = member.upgrade() else { return };
            let oldest = strong.queue.borrow().flights.iter().map(|(_, flight)| flight.dispatched_ns).min();
            let Some(oldest) = oldest else {
                strong.watching.set(false);
                return;
            };
            let look_ns = strong.options.timeout_ns / LOOKS_PER_TIMEOUT;
            let deadline = oldest.saturating_add(strong.options.timeout_ns);
            let now = context.now_ns();
            let is_over = now >= deadline;
            let stood_still = now.saturating_sub(wanted_ns) > look_ns / 2;
            if is_over && (was_put_off || !stood_still) {
                strong.watching.set(false);
                let limit_s = strong.options.timeout_ns as f64 / 1e9;
                strong.fail(&format!("{}: no answer for {limit_s} s", strong.label()));
                return;
            }
            was_put_off = is_over;
            let wait_ns = if is_over { look_ns } else { (deadline - now).min(look_ns) }.max(1);
            wanted_ns = now.saturating_add(wait_ns);
            wait_ns
        };
        context.sleep_ns(wait_ns).await;
    }
}
