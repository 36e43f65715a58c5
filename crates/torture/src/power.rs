//! Simulates the power supply of all drives, and their latency.
//!
//! A [`Wire`] connects a drive's faults to its memory. A request takes time in both directions: it
//! takes effect between its submission and its completion, requests overtake each other, and a
//! flush covers only writes that have arrived. Power fails at an instant of the clock, or at a
//! given write counted over all drives. Then requests in transit never arrive and nothing completes
//! any more; the end of the life decides which writes the drives' caches keep.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use stripewise_drive::{
    Buffer, Completion, CompletionSender, Context, CrashDrive, Drive, DriveErrorKind, DriveInfo, DriveKind,
    Event, IoRequest, Operation, SplitMix64, completion,
};

/// The power supply of one life.
pub(crate) struct Power {
    off: Cell<bool>,
    writes: Cell<u64>,
    /// Number of the write at which power fails.
    at_write: Cell<u64>,
    /// Structure, and the number of its writes until power fails.
    at_copy: Cell<Option<(Structure, u64)>>,
    /// Label of the only drive that has that copy.
    only_copy_on: RefCell<Option<Arc<str>>>,
    went: Event,
    /// Requests that never complete.
    unanswered: RefCell<Vec<CompletionSender>>,
}

impl Power {
    /// A power supply that is on.
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            off: Cell::new(false),
            writes: Cell::new(0),
            at_write: Cell::new(u64::MAX),
            at_copy: Cell::default(),
            only_copy_on: RefCell::default(),
            went: Event::new(),
            unanswered: RefCell::default(),
        })
    }

    /// Cuts power at the `count`-th write from now.
    pub(crate) fn cut_at_write(&self, count: u64) {
        self.at_write.set(self.writes.get() + count);
    }

    /// Cuts power at the `count`-th write of this structure from now. That write is in its drive;
    /// of writes sent with it, only those that have arrived are.
    pub(crate) fn cut_at_copy(&self, structure: Structure, count: u64) {
        self.at_copy.set(Some((structure, count)));
    }

    /// Label of the drive whose copy triggered the cut.
    pub(crate) fn only_copy_on(&self) -> Option<Arc<str>> {
        self.only_copy_on.borrow().clone()
    }

    /// True if this request triggers the cut.
    fn is_last_copy(&self, request: &IoRequest) -> bool {
        let Some((structure, left)) = self.at_copy.get() else { return false };
        if !structure.is_in(request) {
            return false;
        }
        self.at_copy.set(Some((structure, left.saturating_sub(1))));
        left <= 1
    }

    /// Cuts power now.
    pub(crate) fn cut(&self) {
        self.off.set(true);
        self.went.notify_all();
    }

    /// True if power is off.
    pub(crate) fn is_off(&self) -> bool {
        self.off.get()
    }

    /// Waits for the cut.
    pub(crate) async fn until_off(&self) {
        while !self.off.get() {
            self.went.wait().await;
        }
    }
}

/// The completion that triggers a power cut: the first durable one, of a request that began and
/// completed after these times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastAnswer {
    pub began_after_ns: u64,
    pub answered_after_ns: u64,
}

impl LastAnswer {
    /// True if the completion, at `now_ns`, of a request that began at `began_ns` triggers the cut.
    pub(crate) fn is_it(&self, began_ns: u64, now_ns: u64) -> bool {
        began_ns > self.began_after_ns && now_ns > self.answered_after_ns
    }
}

/// End of a life.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    Close,
    CutAtWrite(u64),
    /// A power cut at the n-th write of a structure with several copies.
    CutAtCopy(Structure, u64),
    CutAfter(u64),
}

/// A structure that the engine keeps in several copies on different drives, recognised by its
/// magic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Structure {
    /// A page of a region bitmap.
    Map,
    /// The header of an area of a journal.
    JournalHeader,
    /// A batch of a journal.
    JournalBatch,
    /// A commit to the pool's record.
    Commit,
    /// A page of checksums.
    Checksums,
}

impl Structure {
    /// All structures.
    pub(crate) const ALL: [Self; 5] =
        [Self::Map, Self::JournalHeader, Self::JournalBatch, Self::Commit, Self::Checksums];

    fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Map => b"SWREGMAP",
            Self::JournalHeader => b"SWJAREA\0",
            Self::JournalBatch => b"SWJBATCH",
            Self::Commit => b"STRPWISE",
            Self::Checksums => b"STRPSUMS",
        }
    }

    /// True if a request, possibly a merged one, writes this structure.
    fn is_in(self, request: &IoRequest) -> bool {
        let begins = |segment: &Buffer| {
            let is_it = |bytes: &[u8]| bytes.starts_with(self.magic());
            segment.with(is_it).unwrap_or(false)
        };
        request.segments.iter().any(begins)
    }
}

/// Callback for a failed flush. Returns the callback for the moment of its completion.
type Struck = Box<dyn FnOnce() -> Answered>;
/// Callback for the completion of a failed flush.
pub(crate) type Answered = Box<dyn FnOnce()>;

/// Error number of "input/output error".
const EIO: i32 = 5;

/// Latency of a drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latency {
    /// Minimum in each direction.
    pub least_ns: u64,
    /// Maximum in each direction.
    pub most_ns: u64,
}

impl Latency {
    fn draw_ns(self, random: &mut SplitMix64) -> u64 {
        self.least_ns + random.below(self.most_ns - self.least_ns + 1)
    }
}

struct Shared {
    info: DriveInfo,
    context: Context,
    inner: Rc<CrashDrive>,
    power: Rc<Power>,
    latency: Latency,
    random: RefCell<SplitMix64>,
    flush_fault: RefCell<Option<Struck>>,
    /// Time when the error of the last failed flush is reported.
    error_at_ns: Cell<u64>,
    /// Set once the connection was lost.
    lost: RefCell<Option<Lost>>,
}

/// A lost connection.
#[derive(Clone)]
struct Lost {
    /// Time in which writes that were on their way may still be executed.
    latest_ns: u64,
    /// Called for each that is.
    executed: Rc<dyn Fn()>,
}

/// Properties of all drives of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    pub latency: Latency,
    /// True if the drives do not report to be memory, so that the engine queues their requests.
    pub queued: bool,
    /// Bytes that the drives report to transfer in the time of one seek.
    pub gap_bytes: u64,
}

/// A drive connected to the power supply of a life.
pub(crate) struct Wire(Rc<Shared>);

impl Wire {
    /// Connects `inner`.
    pub(crate) fn new(
        context: &Context,
        inner: Rc<CrashDrive>,
        power: Rc<Power>,
        Traits { latency, queued, gap_bytes }: Traits,
        seed: u64,
    ) -> Rc<Self> {
        let kind = if queued { DriveKind::Model } else { DriveKind::Memory };
        let info = DriveInfo { kind, gap_bytes, ..inner.info().clone() };
        let random = RefCell::new(SplitMix64::new(seed));
        let (context, error_at_ns) = (context.clone(), Cell::new(0));
        let (flush_fault, lost) = (RefCell::default(), RefCell::default());
        let shared = Shared { info, context, inner, power, latency, random, flush_fault, error_at_ns, lost };
        Rc::new(Self(Rc::new(shared)))
    }

    /// Makes the next flush fail and lose the drive's cache; then calls `struck`, and what that
    /// returns when the failure is reported.
    pub(crate) fn fail_next_flush(&self, struck: impl FnOnce() -> Answered + 'static) {
        *self.0.flush_fault.borrow_mut() = Some(Box::new(struck));
    }

    /// Loses the connection for good, and perhaps the drive's cache. Requests on their way to the
    /// drive end as gone; of the writes among them, some are executed within `latest_ns`, which
    /// calls `executed`.
    pub(crate) fn lose_connection(&self, latest_ns: u64, loses_cache: bool, executed: impl Fn() + 'static) {
        let shared = &self.0;
        if loses_cache {
            let seed = shared.random.borrow_mut().next_u64();
            shared.inner.lose_cache(seed);
        }
        *shared.lost.borrow_mut() = Some(Lost { latest_ns, executed: Rc::new(executed) });
    }
}

impl Shared {
    fn hold(&self, sender: CompletionSender) {
        self.power.unanswered.borrow_mut().push(sender);
    }

    /// Ends a request whose connection was lost on its way. The caller may use its memory again.
    async fn arrive_late(&self, request: IoRequest, sender: CompletionSender, lost: &Lost) {
        let is_change = !matches!(request.operation, Operation::Read | Operation::Flush);
        let is_late = is_change && self.random.borrow_mut().chance(0.5);
        let late_ns = self.random.borrow_mut().below(lost.latest_ns);
        let gone = request.error(&self.info.label, DriveErrorKind::Gone, None);
        let segments = request.segments.iter().map(|segment| Buffer::from_bytes(&segment.to_vec()));
        let late = is_late.then(|| IoRequest { segments: segments.collect(), ..request });
        sender.complete(Err(gone));
        let Some(late) = late else { return };
        self.context.sleep_ns(late_ns).await;
        if !self.power.is_off() {
            let _ = self.inner.submit(late).try_take();
            (lost.executed)();
        }
    }

    /// Latency of a completion sent now. A read after the loss of the cache completes after the
    /// flush that lost it: otherwise the engine could not know that the data is outdated.
    fn on_the_way_ns(&self, way_out_ns: u64) -> u64 {
        let until_told = (self.error_at_ns.get() + 1).saturating_sub(self.context.now_ns());
        if self.error_at_ns.get() == 0 { way_out_ns } else { way_out_ns.max(until_told) }
    }
}

impl Drive for Wire {
    fn info(&self) -> &DriveInfo {
        &self.0.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        let shared = &self.0;
        if let Err(error) = request.check(&shared.info) {
            return Completion::ready(Err(error));
        }
        let (sender, answer) = completion();
        if shared.power.is_off() {
            shared.hold(sender);
            return answer;
        }
        let (way_in_ns, way_out_ns) = {
            let mut random = shared.random.borrow_mut();
            (shared.latency.draw_ns(&mut random), shared.latency.draw_ns(&mut random))
        };
        if !matches!(request.operation, Operation::Read | Operation::Flush) {
            let power = &shared.power;
            if power.is_last_copy(&request) {
                let _ = shared.inner.submit(request).try_take();
                let _ = shared.inner.submit(IoRequest::flush()).try_take();
                *power.only_copy_on.borrow_mut() = Some(shared.info.label.clone());
                power.cut();
                shared.hold(sender);
                return answer;
            }
            power.writes.set(power.writes.get() + 1);
            if power.writes.get() >= power.at_write.get() {
                // Half of the requests have reached the drive by then.
                if shared.random.borrow_mut().chance(0.5) {
                    let _ = shared.inner.submit(request).try_take();
                }
                power.cut();
                shared.hold(sender);
                return answer;
            }
        }
        let shared = shared.clone();
        self.0.context.spawn(async move {
            shared.context.sleep_ns(way_in_ns).await;
            if shared.power.is_off() {
                return shared.hold(sender);
            }
            let lost = shared.lost.borrow().clone();
            if let Some(lost) = lost {
                return shared.arrive_late(request, sender, &lost).await;
            }
            let is_read = request.operation == Operation::Read;
            let fault = match request.operation {
                Operation::Flush => shared.flush_fault.borrow_mut().take(),
                _ => None,
            };
            let mut answered = None;
            let result = match fault {
                Some(struck) => {
                    let seed = shared.random.borrow_mut().next_u64();
                    shared.inner.lose_cache(seed);
                    answered = Some(struck());
                    shared.error_at_ns.set(shared.context.now_ns() + way_out_ns);
                    Err(request.error(&shared.info.label, DriveErrorKind::Other, Some(EIO)))
                }
                None => shared.inner.submit(request).await,
            };
            let on_the_way_ns = if is_read { shared.on_the_way_ns(way_out_ns) } else { way_out_ns };
            shared.context.sleep_ns(on_the_way_ns).await;
            if shared.power.is_off() {
                return shared.hold(sender);
            }
            if let Some(answered) = answered {
                answered();
            }
            sender.complete(result);
        });
        answer
    }
}
