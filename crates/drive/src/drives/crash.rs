//! A memory drive with a volatile write cache, whose power can be cut: the drive under crash tests.
//!
//! Reads see the latest write. A flush makes writes completed before it durable; a FUA write makes
//! only itself durable. A power cut decides by seed, for each other sector, if it is kept, lost
//! (reverts to any earlier version since it was last durable) or torn. [`power_loss`] decides; this
//! file has the log it works from: the previous contents of each write that is not yet durable. So
//! a flush only drops entries, and thousands of runs cost little.
//!
//! Memory is bounded by the contents plus the cache: when the cache is full, its oldest writes
//! become durable, as on a real drive.

mod power_loss;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use crate::buffer::Buffer;
use crate::completion::{Completion, CompletionSender, completion};
use crate::context::Context;
use crate::drives::memory::{Chunks, MemoryDrive, for_each_segment, memory_info};
use crate::drives::timing::DelayQueue;
use crate::error::{DriveErrorKind, IoResult};
use crate::operation::Operation;
use crate::random::{Delay, SplitMix64};
use crate::request::{Drive, DriveInfo, IoRequest, Segments};

/// Limit of writes that are not yet durable, in bytes; beyond it the oldest become durable.
const CACHE_BYTES: u64 = 64 << 20;

/// Limit of emptied log entries kept for reuse.
const KEPT_ENTRIES: usize = 256;

/// Outcome of a power cut for the sectors that were not durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CutReport {
    /// Sectors with the latest write.
    pub kept: u64,
    /// Sectors with an older version.
    pub lost: u64,
    /// Sectors with the beginning of one version and the end of another.
    pub torn: u64,
}

/// A write that a power cut may undo.
struct Entry {
    id: u64,
    offset: u64,
    /// Previous contents; as long as the write.
    before: Vec<u8>,
    /// Rank of the answer, counted from the first.
    answered: Option<u64>,
    /// True for a FUA write that was answered: it survives.
    durable: bool,
}

impl Entry {
    fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.before.len() as u64
    }
}

struct Cache {
    /// Contents that reads see.
    contents: Chunks,
    /// In submission order. Writes dropped from here precede the remaining ones of the same sector.
    log: VecDeque<Entry>,
    log_bytes: u64,
    next_id: u64,
    answered: u64,
    spare: Vec<Vec<u8>>,
}

impl Cache {
    fn new(contents: Chunks) -> Self {
        Self { contents, log: VecDeque::new(), log_bytes: 0, next_id: 0, answered: 0, spare: Vec::new() }
    }

    /// Logs the contents of a range that is about to change.
    fn remember(&mut self, offset: u64, length: u64) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        while self.log_bytes > 0 && self.log_bytes + length > CACHE_BYTES {
            let oldest = self.log.pop_front().expect("its bytes were counted");
            self.forget(oldest);
        }
        if length > CACHE_BYTES {
            return id; // durable at once, as everything before it just became
        }
        let mut before = self.spare.pop().unwrap_or_default();
        before.resize(length as usize, 0);
        self.contents.read(offset, &mut before);
        self.log_bytes += length;
        self.log.push_back(Entry { id, offset, before, answered: None, durable: false });
        id
    }

    fn forget(&mut self, entry: Entry) {
        self.log_bytes -= entry.before.len() as u64;
        if self.spare.len() < KEPT_ENTRIES {
            self.spare.push(entry.before);
        }
    }

    fn write_answered(&mut self, id: u64, fua: bool) {
        let answered = self.answered;
        self.answered += 1;
        // Writes that are already durable have left the log.
        if let Ok(index) = self.log.binary_search_by_key(&id, |entry| entry.id) {
            self.log[index].answered = Some(answered);
            self.log[index].durable = fua;
        }
        while self.log.front().is_some_and(|oldest| oldest.durable) {
            let oldest = self.log.pop_front().expect("just seen");
            self.forget(oldest);
        }
    }

    /// Makes the first `answered` answered writes durable.
    fn flushed(&mut self, answered: u64) {
        let covered = |entry: &Entry| entry.answered.is_some_and(|at| at < answered);
        if self.log.iter().all(covered) {
            while let Some(entry) = self.log.pop_front() {
                self.forget(entry);
            }
            return;
        }
        for entry in std::mem::take(&mut self.log) {
            if covered(&entry) {
                self.forget(entry);
            } else {
                self.log.push_back(entry);
            }
        }
    }
}

/// Effect of a request at the time of its answer.
#[derive(Clone, Copy)]
enum Effect {
    None,
    Written { id: u64, fua: bool },
    Flushed { answered: u64 },
}

struct PendingAnswer {
    effect: Effect,
    power_cycle: u64,
    /// The request without its memory.
    header: IoRequest,
    sender: CompletionSender,
}

struct State {
    info: DriveInfo,
    cache: RefCell<Cache>,
    powered: Cell<bool>,
    /// Number of power cuts.
    power_cycle: Cell<u64>,
    tears_sectors: Cell<bool>,
    ignores_flushes: Cell<bool>,
}

struct Delays {
    context: Context,
    delay: Delay,
    random: RefCell<SplitMix64>,
    queue: DelayQueue<PendingAnswer>,
}

/// A memory drive that loses unflushed writes when its power is cut.
pub struct CrashDrive {
    state: Rc<State>,
    /// `None`: answers at once.
    delays: Option<Delays>,
}

impl CrashDrive {
    /// Creates a drive that answers at once, so that no request is ever in flight. `capacity_bytes`
    /// is a multiple of 512.
    pub fn new(label: &str, capacity_bytes: u64) -> Rc<Self> {
        Self::of(memory_info(label, capacity_bytes, 512), Chunks::new(capacity_bytes), None)
    }

    /// Creates a drive whose delay is drawn for each request, so that requests overlap and complete
    /// out of order, and a power cut finds some in flight.
    pub fn with_delay(
        context: &Context,
        label: &str,
        capacity_bytes: u64,
        delay: Delay,
        seed: u64,
    ) -> Rc<Self> {
        let delays = Some((context, delay, seed));
        Self::of(memory_info(label, capacity_bytes, 512), Chunks::new(capacity_bytes), delays)
    }

    /// Creates a drive with a durable copy of `image`: the drive after a restart.
    pub fn from_image(label: &str, image: &MemoryDrive) -> Rc<Self> {
        let info = DriveInfo { label: label.into(), ..image.info().clone() };
        Self::of(info, image.copy_of_contents(), None)
    }

    fn of(info: DriveInfo, contents: Chunks, delays: Option<(&Context, Delay, u64)>) -> Rc<Self> {
        let state = Rc::new(State {
            info: DriveInfo { volatile_cache: true, ..info },
            cache: RefCell::new(Cache::new(contents)),
            powered: Cell::new(true),
            power_cycle: Cell::new(0),
            tears_sectors: Cell::new(true),
            ignores_flushes: Cell::new(false),
        });
        let delays = delays.map(|(context, delay, seed)| {
            let state = state.clone();
            let queue = DelayQueue::start(context, move |_, pending: PendingAnswer| {
                let result = state.finish(pending.effect, pending.power_cycle, &pending.header);
                pending.sender.complete(result);
            });
            Delays { context: context.clone(), delay, random: RefCell::new(SplitMix64::new(seed)), queue }
        });
        Rc::new(Self { state, delays })
    }

    /// Sets whether a power cut may leave a sector half old, half new. On by default.
    pub fn set_tears_sectors(&self, tears: bool) {
        self.state.tears_sectors.set(tears);
    }

    /// Makes the drive lie: flushes and FUA succeed and make nothing durable.
    pub fn set_ignores_flushes(&self, ignores: bool) {
        self.state.ignores_flushes.set(ignores);
    }

    /// Bytes written that a power cut may undo.
    pub fn volatile_bytes(&self) -> u64 {
        let cache = self.state.cache.borrow();
        cache.log.iter().filter(|entry| !entry.durable).map(|entry| entry.before.len() as u64).sum()
    }

    /// Cuts power: decides by `seed` which sectors of the cache, requests in flight included, are
    /// kept, lost or torn. From now on every request, in flight or new, fails with
    /// [`DriveErrorKind::Gone`] until [`Self::power_on`].
    pub fn power_cut(&self, seed: u64) -> CutReport {
        let state = &self.state;
        state.powered.set(false);
        state.power_cycle.set(state.power_cycle.get() + 1);
        self.give_up_cache(seed, state.tears_sectors.get())
    }

    /// Loses the cache and continues to answer, like a drive whose flush failed: by `seed`, each
    /// cached sector is kept or reverts to something older; none is torn.
    pub fn lose_cache(&self, seed: u64) -> CutReport {
        self.give_up_cache(seed, false)
    }

    fn give_up_cache(&self, seed: u64, tears_sectors: bool) -> CutReport {
        let state = &self.state;
        let mut cache = state.cache.borrow_mut();
        let (report, changes) = cache.lose_power(seed, &state.info, tears_sectors);
        for (offset, sector) in changes {
            cache.contents.write(offset, &sector);
        }
        let cut = std::mem::take(&mut cache.log);
        cut.into_iter().for_each(|entry| cache.forget(entry));
        report
    }

    /// Restores power after a cut.
    pub fn power_on(&self) {
        self.state.powered.set(true);
    }

    /// Returns the contents that a power cut at this instant would leave, as a separate drive. This
    /// drive is not affected.
    pub fn image_after_cut(&self, label: &str, seed: u64) -> Rc<MemoryDrive> {
        let cache = self.state.cache.borrow();
        let mut contents = cache.contents.copy();
        let (_, changes) = cache.lose_power(seed, &self.state.info, self.state.tears_sectors.get());
        for (offset, sector) in changes {
            contents.write(offset, &sector);
        }
        let info = DriveInfo { label: label.into(), volatile_cache: false, ..self.state.info.clone() };
        Rc::new(MemoryDrive::of(info, contents))
    }

    /// Copies contents as reads see them from `offset_bytes` on, bypassing the queue: for tests.
    /// Panics beyond the end.
    pub fn peek(&self, offset_bytes: u64, into: &mut [u8]) {
        let end = offset_bytes + into.len() as u64;
        assert!(end <= self.state.info.capacity_bytes, "peek beyond the drive's end");
        self.state.cache.borrow().contents.read(offset_bytes, into);
    }
}

impl State {
    /// Performs the immediate part of a request; the effect applies at the answer.
    fn begin(&self, request: &IoRequest) -> Effect {
        let mut cache = self.cache.borrow_mut();
        let cache = &mut *cache;
        let length = request.length_bytes;
        match request.operation {
            Operation::Write { .. } | Operation::Discard | Operation::WriteZeroes if length == 0 => {
                Effect::None
            }
            Operation::Read => {
                for_each_segment(request, |at, segment| {
                    segment.with_mut(|bytes| cache.contents.read(at, bytes));
                });
                Effect::None
            }
            Operation::Write { fua } => {
                if request.segments.iter().all(Buffer::is_phantom) {
                    return Effect::None;
                }
                let id = cache.remember(request.offset_bytes, length);
                for_each_segment(request, |at, segment| {
                    segment.with(|bytes| cache.contents.write(at, bytes));
                });
                Effect::Written { id, fua: fua && !self.ignores_flushes.get() }
            }
            Operation::Discard | Operation::WriteZeroes => {
                let id = cache.remember(request.offset_bytes, length);
                cache.contents.zero(request.offset_bytes, length);
                Effect::Written { id, fua: false }
            }
            Operation::Flush if self.ignores_flushes.get() => Effect::None,
            Operation::Flush => Effect::Flushed { answered: cache.answered },
        }
    }

    fn finish(&self, effect: Effect, power_cycle: u64, header: &IoRequest) -> IoResult {
        if power_cycle != self.power_cycle.get() {
            return Err(header.error(&self.info.label, DriveErrorKind::Gone, None));
        }
        match effect {
            Effect::None => {}
            Effect::Written { id, fua } => self.cache.borrow_mut().write_answered(id, fua),
            Effect::Flushed { answered } => self.cache.borrow_mut().flushed(answered),
        }
        Ok(())
    }
}

impl Drive for CrashDrive {
    fn info(&self) -> &DriveInfo {
        &self.state.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        let state = &self.state;
        if let Err(error) = request.check(&state.info) {
            return Completion::ready(Err(error));
        }
        if !state.powered.get() {
            return Completion::ready(Err(request.error(&state.info.label, DriveErrorKind::Gone, None)));
        }
        let effect = state.begin(&request);
        let power_cycle = state.power_cycle.get();
        let header = IoRequest { segments: Segments::new(), ..request };
        let Some(delays) = &self.delays else {
            return Completion::ready(state.finish(effect, power_cycle, &header));
        };
        let delay_ns = delays.delay.draw_ns(&mut delays.random.borrow_mut());
        let (sender, completion) = completion();
        let due_ns = delays.context.now_ns().saturating_add(delay_ns);
        delays.queue.push(due_ns, PendingAnswer { effect, power_cycle, header, sender });
        completion
    }
}
