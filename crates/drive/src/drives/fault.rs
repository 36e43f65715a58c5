//! A wrapper that injects every fault a drive may show into any drive, at run time and by seed.
//!
//! Loud faults: sectors that cannot be read until rewritten (latent sector errors), sectors that
//! cannot be written, transient errors, slowness, requests that are never answered, a pulled drive.
//! Silent faults: torn, lost and misdirected writes that report success, and bit rot. Power cuts
//! are simulated by [`crate::CrashDrive`].
//!
//! Without a fault, a request passes straight through. The same seed and the same requests give the
//! same faults.
//!
//! Buffers of failed reads are filled with rubbish, as a real drive may have begun to fill them:
//! callers must not rely on them. Misdirected writes and the silent changes of [`FaultyDrive::rot`]
//! affect places where other requests may be in flight; a [`crate::CheckedDrive`] therefore belongs
//! above this drive, never beneath.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use crate::buffer::Buffer;
use crate::completion::{Completion, CompletionSender, completion};
use crate::context::Context;
use crate::drives::ranges::RangeSet;
use crate::drives::timing::when_answered;
use crate::error::{DriveErrorKind, IoResult};
use crate::operation::Operation;
use crate::random::{Delay, SplitMix64};
use crate::request::{Drive, DriveInfo, IoRequest, Segments};

/// Contents of the buffer after a failed read.
const RUBBISH: u8 = 0xe5;

/// OS code for "input/output error", used for transient errors.
const EIO: i32 = 5;

/// OS code for "no space left on device".
const ENOSPC: i32 = 28;

/// A silent write fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFault {
    /// Only the first blocks are written; their number is drawn, and at least one is missing.
    TornPrefix,
    /// Each block is written or not, at random; at least one is missing.
    TornSubset,
    /// Nothing is written.
    Lost,
    /// Everything is written to the wrong offset: this one, or one drawn at random.
    Misdirected(Option<u64>),
}

/// Number of times each fault struck.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Reads that met an unreadable sector.
    pub unreadable: u64,
    /// Bytes of unreadable sectors reallocated by writing them.
    pub reallocated_bytes: u64,
    /// Writes that met an unwritable sector.
    pub unwritable: u64,
    /// Writes refused for lack of space.
    pub no_space: u64,
    /// Transient errors.
    pub transient: u64,
    /// Requests made slower.
    pub slowed: u64,
    /// Requests or answers held back.
    pub stuck: u64,
    /// Requests refused, or answers replaced, because the drive was gone.
    pub gone: u64,
    /// Writes torn.
    pub torn: u64,
    /// Writes lost.
    pub lost: u64,
    /// Writes misdirected.
    pub misdirected: u64,
    /// Bytes changed silently.
    pub rotten_bytes: u64,
}

struct Armed {
    /// `None`: any write.
    range: Option<Range<u64>>,
    fault: WriteFault,
}

enum Held {
    Request(IoRequest, CompletionSender),
    /// The request is stored without its memory.
    Answer(IoRequest, IoResult, CompletionSender),
}

struct State {
    info: DriveInfo,
    context: Context,
    inner: Rc<dyn Drive>,
    random: RefCell<SplitMix64>,
    counts: Cell<FaultCounts>,
    unreadable: RefCell<RangeSet>,
    unwritable: RefCell<RangeSet>,
    full: Cell<bool>,
    /// Probabilities of a transient error: of a read, of a request that writes.
    transient: Cell<(f64, f64)>,
    delay: Cell<Delay>,
    slowdown: Cell<f64>,
    armed: RefCell<Vec<Armed>>,
    write_fault_rate: Cell<Option<(f64, WriteFault)>>,
    stuck: Cell<bool>,
    stick_next: Cell<u64>,
    held: RefCell<VecDeque<Held>>,
    gone: Cell<bool>,
    /// Number of times the drive was pulled; answers to requests from before are lost.
    unplugged: Cell<u64>,
}

/// A drive that fails on demand.
pub struct FaultyDrive(Rc<State>);

impl FaultyDrive {
    /// Wraps `inner`; passes every request through until a fault is set.
    pub fn new(context: &Context, inner: Rc<dyn Drive>, seed: u64) -> Rc<Self> {
        Rc::new(Self(Rc::new(State {
            info: inner.info().clone(),
            context: context.clone(),
            inner,
            random: RefCell::new(SplitMix64::new(seed)),
            counts: Cell::default(),
            unreadable: RefCell::default(),
            unwritable: RefCell::default(),
            full: Cell::new(false),
            transient: Cell::new((0.0, 0.0)),
            delay: Cell::new(Delay::None),
            slowdown: Cell::new(1.0),
            armed: RefCell::default(),
            write_fault_rate: Cell::new(None),
            stuck: Cell::new(false),
            stick_next: Cell::new(0),
            held: RefCell::default(),
            gone: Cell::new(false),
            unplugged: Cell::new(0),
        })))
    }

    /// Number of times each fault struck so far.
    pub fn counts(&self) -> FaultCounts {
        self.0.counts.get()
    }

    /// Latent sector errors: reads of the blocks of `range` (bytes) fail until those blocks are
    /// written.
    pub fn make_unreadable(&self, range: Range<u64>) {
        self.0.unreadable.borrow_mut().insert(self.0.whole_blocks(range));
    }

    /// Unreadable bytes at present.
    pub fn unreadable_bytes(&self) -> u64 {
        self.0.unreadable.borrow().total_bytes()
    }

    /// Write errors: writes, discards and write-zeroes that touch the blocks of `range` (bytes)
    /// fail after writing the part before the first bad block.
    pub fn make_unwritable(&self, range: Range<u64>) {
        self.0.unwritable.borrow_mut().insert(self.0.whole_blocks(range));
    }

    /// Sets whether every write is refused for lack of space, like a file on a full file system.
    pub fn set_full(&self, full: bool) {
        self.0.full.set(full);
    }

    /// Makes the blocks of `range` (bytes) readable and writable again.
    pub fn repair(&self, range: Range<u64>) {
        let range = self.0.whole_blocks(range);
        self.0.unreadable.borrow_mut().remove(range.clone());
        self.0.unwritable.borrow_mut().remove(range);
    }

    /// Fails each read, and each request that writes, with these probabilities and without effect.
    pub fn set_transient_errors(&self, of_reads: f64, of_writes: f64) {
        self.0.transient.set((of_reads, of_writes));
    }

    /// Delays every answer.
    pub fn set_delay(&self, delay: Delay) {
        self.0.delay.set(delay);
    }

    /// Makes every answer take `factor` times as long as on the drive beneath; no effect at 1 or
    /// less.
    pub fn set_slowdown(&self, factor: f64) {
        self.0.slowdown.set(factor);
    }

    /// Applies a fault to the next write. Several can be armed; each strikes once, in the order
    /// armed.
    pub fn arm_write_fault(&self, fault: WriteFault) {
        self.0.armed.borrow_mut().push(Armed { range: None, fault });
    }

    /// Applies a fault to the next write that touches `range` (bytes).
    pub fn arm_write_fault_at(&self, range: Range<u64>, fault: WriteFault) {
        self.0.armed.borrow_mut().push(Armed { range: Some(range), fault });
    }

    /// Applies a fault to each write with `probability`; 0 turns it off.
    pub fn set_write_fault_rate(&self, probability: f64, fault: WriteFault) {
        self.0.write_fault_rate.set((probability > 0.0).then_some((probability, fault)));
    }

    /// Holds all answers, also those of requests in flight, until [`Self::release`].
    pub fn stick(&self) {
        self.0.stuck.set(true);
    }

    /// Holds the next `count` requests until [`Self::release`]; others are answered.
    pub fn stick_next(&self, count: u64) {
        self.0.stick_next.set(count);
    }

    /// Performs the held requests in order and ends the hold.
    pub fn release(&self) {
        self.0.stuck.set(false);
        self.0.stick_next.set(0);
        let held = self.0.held.take();
        for held in held {
            match held {
                Held::Request(request, sender) => {
                    let answer = State::start(&self.0, request);
                    when_answered(&self.0.context, answer, |result| sender.complete(result));
                }
                Held::Answer(_, result, sender) => sender.complete(result),
            }
        }
    }

    /// Pulls the drive: requests, also those in flight and held back, fail until [`Self::plug_in`].
    pub fn unplug(&self) {
        self.0.gone.set(true);
        self.0.unplugged.set(self.0.unplugged.get() + 1);
        let held = self.0.held.take();
        for held in held {
            let (Held::Request(request, sender) | Held::Answer(request, _, sender)) = held;
            self.0.count(|counts| counts.gone += 1);
            sender.complete(self.0.failed(&request, DriveErrorKind::Gone, None));
        }
    }

    /// Brings the drive back with its contents.
    pub fn plug_in(&self) {
        self.0.gone.set(false);
    }

    /// Flips the bits of `mask` in the stored byte at `offset_bytes`, bypassing all faults. Fails
    /// if the drive beneath does.
    pub async fn rot(&self, offset_bytes: u64, mask: u8) -> IoResult {
        self.change_stored(offset_bytes..offset_bytes + 1, |bytes, _| bytes[0] ^= mask).await
    }

    /// Replaces the stored bytes of `range` by random ones, bypassing all faults. Fails if the
    /// drive beneath does.
    pub async fn scramble(&self, range: Range<u64>) -> IoResult {
        self.change_stored(range, |bytes, random| bytes.fill_with(|| random.next_u64() as u8)).await
    }

    async fn change_stored(
        &self,
        range: Range<u64>,
        change: impl FnOnce(&mut [u8], &mut SplitMix64),
    ) -> IoResult {
        let blocks = self.0.whole_blocks(range.clone());
        let buffer = Buffer::from_bytes(&vec![0; (blocks.end - blocks.start) as usize]);
        self.0.inner.submit(IoRequest::read(blocks.start, buffer.clone())).await?;
        let within = (range.start - blocks.start) as usize..(range.end - blocks.start) as usize;
        buffer.slice(within).with_mut(|bytes| change(bytes, &mut self.0.random.borrow_mut()));
        self.0.count(|counts| counts.rotten_bytes += range.end - range.start);
        self.0.inner.submit(IoRequest::write(blocks.start, buffer, false)).await
    }
}

/// The request without its memory, for error reports.
fn header(request: &IoRequest) -> IoRequest {
    IoRequest { segments: Segments::new(), ..*request }
}

/// The part of a request from `from` to `to`, in bytes from the request's start.
fn part(request: &IoRequest, from: u64, to: u64) -> IoRequest {
    let mut segments = Segments::new();
    let mut at = 0;
    for segment in &request.segments {
        let length = segment.len() as u64;
        let (start, end) = (from.clamp(at, at + length), to.clamp(at, at + length));
        if start < end {
            segments.push(segment.slice((start - at) as usize..(end - at) as usize));
        }
        at += length;
    }
    let offset_bytes = request.offset_bytes + from;
    IoRequest { offset_bytes, length_bytes: to - from, segments, ..*request }
}

impl State {
    fn count(&self, change: impl FnOnce(&mut FaultCounts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    fn block_bytes(&self) -> u64 {
        u64::from(self.info.logical_block_bytes)
    }

    fn whole_blocks(&self, range: Range<u64>) -> Range<u64> {
        let block = self.block_bytes();
        range.start / block * block..range.end.next_multiple_of(block)
    }

    fn failed(&self, request: &IoRequest, kind: DriveErrorKind, os_code: Option<i32>) -> IoResult {
        Err(request.error(&self.info.label, kind, os_code))
    }

    /// Delivers an answer, unless the drive is stuck or was pulled since the request arrived.
    fn answer(&self, header: IoRequest, unplugged: u64, result: IoResult, sender: CompletionSender) {
        if self.unplugged.get() != unplugged {
            self.count(|counts| counts.gone += 1);
            sender.complete(self.failed(&header, DriveErrorKind::Gone, None));
        } else if self.stuck.get() {
            self.count(|counts| counts.stuck += 1);
            self.held.borrow_mut().push_back(Held::Answer(header, result, sender));
        } else {
            sender.complete(result);
        }
    }

    /// Performs a request with its faults and delays.
    fn start(this: &Rc<Self>, request: IoRequest) -> Completion {
        let header = header(&request);
        let started_ns = this.context.now_ns();
        let answer = match this.perform(request).try_take() {
            // A multiple of zero time is zero.
            Ok(result) if this.delay.get() == Delay::None => return Completion::ready(result),
            Ok(result) => Completion::ready(result),
            Err(answer) => answer,
        };
        let delay_ns = this.delay.get().draw_ns(&mut this.random.borrow_mut());
        let slowdown = this.slowdown.get().max(1.0);
        if delay_ns > 0 || slowdown > 1.0 {
            this.count(|counts| counts.slowed += 1);
        }
        let (sender, completion) = completion();
        let (state, unplugged) = (this.clone(), this.unplugged.get());
        this.context.spawn(async move {
            let result = answer.await;
            let took_ns = state.context.now_ns() - started_ns;
            let longer_ns = (took_ns as f64 * (slowdown - 1.0)) as u64;
            state.context.sleep_ns(delay_ns.saturating_add(longer_ns)).await;
            state.answer(header, unplugged, result, sender);
        });
        completion
    }

    fn perform(&self, request: IoRequest) -> Completion {
        match request.operation {
            Operation::Flush => self.inner.submit(request),
            Operation::Read => match self.read_failure(&request) {
                Some(failure) => Completion::ready(failure),
                None => self.inner.submit(request),
            },
            Operation::Write { .. } | Operation::Discard | Operation::WriteZeroes => self.change(request),
        }
    }

    /// Performs a request that writes.
    fn change(&self, request: IoRequest) -> Completion {
        if self.full.get() && matches!(request.operation, Operation::Write { .. }) {
            self.count(|counts| counts.no_space += 1);
            return Completion::ready(self.failed(&request, DriveErrorKind::NoSpace, Some(ENOSPC)));
        }
        let bad = self.unwritable.borrow().first_within(request.offset_bytes..request.end_bytes());
        if let Some(bad) = bad {
            self.count(|counts| counts.unwritable += 1);
            return self.write_up_to(&request, bad);
        }
        if let Some(failure) = self.transient_failure(&request, self.transient.get().1) {
            return Completion::ready(failure);
        }
        let fault = match request.operation {
            Operation::Write { .. } => self.draw_write_fault(&request),
            _ => None,
        };
        match fault {
            Some(fault) => self.write_wrongly(&request, fault),
            None => self.pass_on(request),
        }
    }

    /// Fails at the bad block at `bad` after writing the part before it.
    fn write_up_to(&self, request: &IoRequest, bad: u64) -> Completion {
        let failure = self.failed(request, DriveErrorKind::Medium, None);
        if bad == request.offset_bytes {
            return Completion::ready(failure);
        }
        let before = self.pass_on(part(request, 0, bad - request.offset_bytes));
        let (sender, completion) = completion();
        when_answered(&self.context, before, |_| sender.complete(failure));
        completion
    }

    /// Writes to the drive beneath; the written blocks become readable.
    fn pass_on(&self, request: IoRequest) -> Completion {
        let reallocated = self.unreadable.borrow_mut().remove(request.offset_bytes..request.end_bytes());
        self.count(|counts| counts.reallocated_bytes += reallocated);
        self.inner.submit(request)
    }

    fn transient_failure(&self, request: &IoRequest, probability: f64) -> Option<IoResult> {
        if probability <= 0.0 || !self.random.borrow_mut().chance(probability) {
            return None;
        }
        self.count(|counts| counts.transient += 1);
        Some(self.failed(request, DriveErrorKind::Other, Some(EIO)))
    }

    fn read_failure(&self, request: &IoRequest) -> Option<IoResult> {
        let bad = self.unreadable.borrow().first_within(request.offset_bytes..request.end_bytes());
        let failure = match bad {
            Some(_) => {
                self.count(|counts| counts.unreadable += 1);
                Some(self.failed(request, DriveErrorKind::Medium, None))
            }
            None => self.transient_failure(request, self.transient.get().0),
        };
        if failure.is_some() {
            request.segments.iter().for_each(|segment| segment.fill(RUBBISH));
        }
        failure
    }

    fn draw_write_fault(&self, request: &IoRequest) -> Option<WriteFault> {
        let mut armed = self.armed.borrow_mut();
        let strikes = |armed: &Armed| match &armed.range {
            None => true,
            Some(range) => range.start < request.end_bytes() && request.offset_bytes < range.end,
        };
        if let Some(index) = armed.iter().position(strikes) {
            return Some(armed.remove(index).fault);
        }
        let (probability, fault) = self.write_fault_rate.get()?;
        self.random.borrow_mut().chance(probability).then_some(fault)
    }

    /// Reports success for a faulty write.
    fn write_wrongly(&self, request: &IoRequest, fault: WriteFault) -> Completion {
        let blocks = request.length_bytes / self.block_bytes();
        let kept: Vec<bool> = match fault {
            WriteFault::Lost => {
                self.count(|counts| counts.lost += 1);
                return Completion::ready(Ok(()));
            }
            WriteFault::Misdirected(to) => {
                self.count(|counts| counts.misdirected += 1);
                let offset_bytes = to.unwrap_or_else(|| self.draw_elsewhere(request));
                return self.pass_on(IoRequest { offset_bytes, ..request.clone() });
            }
            _ if blocks == 0 => return Completion::ready(Ok(())),
            WriteFault::TornPrefix => {
                let written = self.random.borrow_mut().below(blocks);
                (0..blocks).map(|block| block < written).collect()
            }
            WriteFault::TornSubset => {
                let mut random = self.random.borrow_mut();
                let missing = random.below(blocks);
                (0..blocks).map(|block| random.chance(0.5) && block != missing).collect()
            }
        };
        self.count(|counts| counts.torn += 1);
        self.write_blocks(request, &kept)
    }

    /// Writes only the blocks marked `kept`, run by run.
    fn write_blocks(&self, request: &IoRequest, kept: &[bool]) -> Completion {
        let block = self.block_bytes();
        let mut result = Ok(());
        let mut pending = Vec::new();
        let mut at = 0;
        for run in kept.chunk_by(|a, b| a == b) {
            let end = at + run.len() as u64 * block;
            if run[0] {
                match self.pass_on(part(request, at, end)).try_take() {
                    Ok(answer) => result = result.and(answer),
                    Err(answer) => pending.push(answer),
                }
            }
            at = end;
        }
        if pending.is_empty() {
            return Completion::ready(result);
        }
        let (sender, completion) = completion();
        self.context.spawn(async move {
            for answer in pending {
                result = result.and(answer.await);
            }
            sender.complete(result);
        });
        completion
    }

    /// Draws another offset for a write; the same one only if there is no other.
    fn draw_elsewhere(&self, request: &IoRequest) -> u64 {
        let block = self.block_bytes();
        let places = (self.info.capacity_bytes - request.length_bytes) / block;
        if places == 0 {
            return request.offset_bytes;
        }
        let own = request.offset_bytes / block;
        let drawn = self.random.borrow_mut().below(places);
        (if drawn < own { drawn } else { drawn + 1 }) * block
    }
}

impl Drive for FaultyDrive {
    fn info(&self) -> &DriveInfo {
        &self.0.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        let state = &self.0;
        if let Err(error) = request.check(&state.info) {
            return Completion::ready(Err(error));
        }
        if state.gone.get() {
            state.count(|counts| counts.gone += 1);
            return Completion::ready(state.failed(&request, DriveErrorKind::Gone, None));
        }
        let chosen = state.stick_next.get() > 0;
        if state.stuck.get() || chosen {
            state.stick_next.set(state.stick_next.get() - u64::from(chosen));
            state.count(|counts| counts.stuck += 1);
            let (sender, completion) = completion();
            state.held.borrow_mut().push_back(Held::Request(request, sender));
            return completion;
        }
        State::start(state, request)
    }
}
