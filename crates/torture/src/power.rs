//! The power that all drives hang on, and the time that each of them takes.
//!
//! A [`Wire`] stands between a drive's faults and its memory: a request takes time on the way in
//! and on the way out, so it is done neither when it is asked for nor when it is answered, requests
//! overtake each other, and a flush covers only what has arrived. When power goes, at an instant of
//! the clock or at a certain write of all drives together, what is on the way never arrives and
//! nothing is answered any more; what the drives' caches then keep is decided by the life that ends
//! there.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use stripewise_drive::{
    Buffer, Completion, CompletionSender, Context, CrashDrive, Drive, DriveErrorKind, DriveInfo, DriveKind,
    Event, IoRequest, Operation, SplitMix64, completion,
};

/// One life's power.
pub(crate) struct Power {
    off: Cell<bool>,
    writes: Cell<u64>,
    /// Power goes at this write.
    at_write: Cell<u64>,
    /// Power goes at the so-many-th write of a structure.
    at_copy: Cell<Option<(Structure, u64)>>,
    /// The drive that has it, and no other: what its label says.
    only_copy_on: RefCell<Option<Rc<str>>>,
    went: Event,
    /// Requests that are never answered.
    unanswered: RefCell<Vec<CompletionSender>>,
}

impl Power {
    /// On.
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

    /// Power goes at the so-many-th write from now.
    pub(crate) fn cut_at_write(&self, count: u64) {
        self.at_write.set(self.writes.get() + count);
    }

    /// Power goes at the so-many-th write of this structure from now: that one is in its drive, and
    /// of others that were sent with it only what has arrived.
    pub(crate) fn cut_at_copy(&self, structure: Structure, count: u64) {
        self.at_copy.set(Some((structure, count)));
    }

    /// The label of the drive at whose copy power went.
    pub(crate) fn only_copy_on(&self) -> Option<Rc<str>> {
        self.only_copy_on.borrow().clone()
    }

    /// Whether power goes with this request.
    fn is_last_copy(&self, request: &IoRequest) -> bool {
        let Some((structure, left)) = self.at_copy.get() else { return false };
        if !structure.is_in(request) {
            return false;
        }
        self.at_copy.set(Some((structure, left.saturating_sub(1))));
        left <= 1
    }

    /// Power goes now.
    pub(crate) fn cut(&self) {
        self.off.set(true);
        self.went.notify_all();
    }

    /// Whether it is gone.
    pub(crate) fn is_off(&self) -> bool {
        self.off.get()
    }

    /// Ends when it goes.
    pub(crate) async fn until_off(&self) {
        while !self.off.get() {
            self.went.wait().await;
        }
    }
}

/// With which answer power goes: the first that is durable, to a request that began and was
/// answered after these times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastAnswer {
    pub began_after_ns: u64,
    pub answered_after_ns: u64,
}

impl LastAnswer {
    /// Whether it is the answer that is given now to a request begun at this time.
    pub(crate) fn is_it(&self, began_ns: u64, now_ns: u64) -> bool {
        began_ns > self.began_after_ns && now_ns > self.answered_after_ns
    }
}

/// How a life ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ending {
    Close,
    CutAtWrite(u64),
    /// At the so-many-th write of something that there are several copies of.
    CutAtCopy(Structure, u64),
    CutAfter(u64),
}

/// What the engine keeps several copies of on different drives, known by how it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Structure {
    /// A page of a region map.
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
    /// All of them.
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

    /// Whether a request writes it; requests may have been merged.
    fn is_in(self, request: &IoRequest) -> bool {
        let begins = |segment: &Buffer| {
            let is_it = |bytes: &[u8]| bytes.starts_with(self.magic());
            segment.with(is_it).unwrap_or(false)
        };
        request.segments.iter().any(begins)
    }
}

/// What is done when a flush fails.
type Struck = Box<dyn FnOnce()>;

/// The system's number for "input/output error".
const EIO: i32 = 5;

/// How long a drive takes, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latency {
    /// At least, each way.
    pub least_ns: u64,
    /// At most, each way.
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
    /// When the error of the last flush that failed is answered.
    told_at_ns: Cell<u64>,
}

/// What all drives of a run are like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    pub latency: Latency,
    /// They say that they are no memory, so that the engine puts a queue in front of them.
    pub queued: bool,
    /// What they say they transfer in the time of one position.
    pub gap_bytes: u64,
}

/// A drive on the life's power.
pub(crate) struct Wire(Rc<Shared>);

impl Wire {
    /// To `inner`.
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
        let (context, flush_fault, told_at_ns) = (context.clone(), RefCell::default(), Cell::new(0));
        let shared = Shared { info, context, inner, power, latency, random, flush_fault, told_at_ns };
        Rc::new(Self(Rc::new(shared)))
    }

    /// The next flush fails, and takes what is in the drive's cache with it; then this is called.
    pub(crate) fn fail_next_flush(&self, struck: impl FnOnce() + 'static) {
        *self.0.flush_fault.borrow_mut() = Some(Box::new(struck));
    }
}

impl Shared {
    fn hold(&self, sender: CompletionSender) {
        self.power.unanswered.borrow_mut().push(sender);
    }

    /// How long an answer that is given now is on its way. What is read after the cache was lost is
    /// answered after the flush that lost it: else nothing could know that it is out of date.
    fn on_the_way_ns(&self, way_out_ns: u64) -> u64 {
        let until_told = (self.told_at_ns.get() + 1).saturating_sub(self.context.now_ns());
        if self.told_at_ns.get() == 0 { way_out_ns } else { way_out_ns.max(until_told) }
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
                // Half of them are in the drive by then.
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
            let is_read = request.operation == Operation::Read;
            let fault = match request.operation {
                Operation::Flush => shared.flush_fault.borrow_mut().take(),
                _ => None,
            };
            let result = match fault {
                Some(struck) => {
                    let seed = shared.random.borrow_mut().next_u64();
                    shared.inner.lose_cache(seed);
                    struck();
                    shared.told_at_ns.set(shared.context.now_ns() + way_out_ns);
                    Err(request.error(&shared.info.label, DriveErrorKind::Other, Some(EIO)))
                }
                None => shared.inner.submit(request).await,
            };
            let on_the_way_ns = if is_read { shared.on_the_way_ns(way_out_ns) } else { way_out_ns };
            shared.context.sleep_ns(on_the_way_ns).await;
            if shared.power.is_off() {
                return shared.hold(sender);
            }
            sender.complete(result);
        });
        answer
    }
}
