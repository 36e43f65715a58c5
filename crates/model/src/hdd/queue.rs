//! Command queue, read cache and write cache over the mechanics of one drive.
//!
//! The drive holds `queue_depth` commands and, with a write cache, the extents that were
//! acknowledged and are not on the medium yet. The arm goes to whichever of them is positioned
//! first, but reads go before destage while the write cache has room, and one that was passed over
//! often is next, so that none starves. A drive that has nothing to do reads on behind the last
//! read, and a read that goes on there comes before what would need the arm, unless that was passed
//! over often. What caches answer goes over one cable, one after the other; data from the medium
//! take it as they come.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use super::cache::ReadCache;
use super::geometry::{Geometry, Target};
use super::mechanics::{Hdd, Plan};
use super::parameter_error::ParameterError;
use super::parameters::HddParameters;

/// A candidate passed over this often is served next.
const PASSED_OVER: u32 = 400;
/// Writes that follow one another become one extent up to this size.
const MERGED_BYTES: u64 = 4 << 20;

/// Operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HddOperation {
    /// From a cache or the medium.
    Read,
    /// Into the write cache where there is room.
    Write,
    /// A write that completes on the medium.
    ForcedWrite,
    /// Everything acknowledged before is on the medium; offset and length mean nothing.
    Flush,
}

/// A request; what lies partly in a sector takes all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HddRequest {
    /// Handed back.
    pub id: u64,
    /// Operation.
    pub operation: HddOperation,
    /// Offset of the first byte.
    pub offset_bytes: u64,
    /// Above zero, except of a flush.
    pub length_bytes: u64,
}

/// A completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// ID of the request.
    pub id: u64,
    /// Time of completion.
    pub at_ns: u64,
}

/// Counters of a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HddStatistics {
    /// Submitted.
    pub requests: u64,
    /// Reads answered without the arm.
    pub read_hits: u64,
    /// Accesses to the medium, destage included.
    pub accesses: u64,
    /// Arm and switches of heads.
    pub moving_ns: u64,
    /// Rotation until the first sector.
    pub waiting_ns: u64,
    /// From the first to the last sector, switches of tracks included.
    pub transferring_ns: u64,
}

impl HddStatistics {
    /// Time of the arm, without read-ahead.
    pub fn busy_ns(&self) -> u64 {
        self.moving_ns + self.waiting_ns + self.transferring_ns
    }
}

#[derive(Clone, Copy, Debug)]
struct Command {
    id: u64,
    /// True for a write in the cache: its request is already complete.
    cached: bool,
    write: bool,
    forced: bool,
    lba: u64,
    sectors: u32,
    target: Target,
    passed_over: u32,
    /// Sequence number of a write in the cache.
    taken: u64,
}

impl Command {
    fn end(&self) -> u64 {
        self.lba + u64::from(self.sectors)
    }
}

/// Reading on from `next_lba`, whose start passed the head at `at_ns`, up to `limit_lba`.
#[derive(Clone, Copy, Debug)]
struct ReadAhead {
    next_lba: u64,
    at_ns: u64,
    limit_lba: u64,
}

/// One drive.
#[derive(Clone, Debug)]
pub struct HddQueue {
    hdd: Hdd,
    sector_bytes: u64,
    overhead_ns: u64,
    interface_bytes_per_second: u64,
    /// The cable carries what was answered before until then.
    cable_free_ns: u64,
    queue_depth: usize,
    read_ahead_sectors: u64,
    cache: ReadCache,
    dirty_extents: usize,
    dirty_sectors_limit: u64,
    tagged: Vec<Command>,
    beyond: VecDeque<HddRequest>,
    dirty: Vec<Command>,
    dirty_sectors: u64,
    serving: Option<(Command, u64)>,
    read_ahead: Option<ReadAhead>,
    /// Answered by the electronics: when, in which order, which.
    answers: BinaryHeap<Reverse<(u64, u64, u64)>>,
    answered: u64,
    /// Extents taken into the write cache so far.
    taken: u64,
    /// Flushes that wait for destage: which, and how many extents had been taken.
    flushes: Vec<(u64, u64)>,
    statistics: HddStatistics,
}

impl HddQueue {
    /// Idle and empty; the seed sets the rotational phase.
    pub fn new(parameters: &HddParameters, seed: u64) -> Result<Self, ParameterError> {
        let geometry = Arc::new(Geometry::new(parameters)?);
        Ok(Self::on(geometry, parameters, seed))
    }

    /// On a geometry that several equal drives share.
    pub fn on(geometry: Arc<Geometry>, parameters: &HddParameters, seed: u64) -> Self {
        let sector_bytes = u64::from(parameters.sector_bytes);
        Self {
            hdd: Hdd::on(geometry, parameters, seed),
            sector_bytes,
            overhead_ns: parameters.command_overhead_ns,
            interface_bytes_per_second: parameters.interface_bytes_per_second,
            cable_free_ns: 0,
            queue_depth: parameters.queue_depth as usize,
            read_ahead_sectors: parameters.read_cache.read_ahead_sectors.into(),
            cache: ReadCache::new(parameters.read_cache),
            dirty_extents: parameters.write_cache.extents as usize,
            dirty_sectors_limit: parameters.write_cache.bytes / sector_bytes,
            tagged: Vec::new(),
            beyond: VecDeque::new(),
            dirty: Vec::new(),
            dirty_sectors: 0,
            serving: None,
            read_ahead: None,
            answers: BinaryHeap::new(),
            answered: 0,
            taken: 0,
            flushes: Vec::new(),
            statistics: HddStatistics::default(),
        }
    }

    /// Whole sectors.
    pub fn capacity_bytes(&self) -> u64 {
        self.hdd.geometry().capacity_sectors() * self.sector_bytes
    }

    /// Since the beginning.
    pub fn statistics(&self) -> HddStatistics {
        self.statistics
    }

    /// Requests that are not answered, destage not counted.
    pub fn pending(&self) -> usize {
        let serving = self.serving.as_ref().is_some_and(|(command, _)| !command.cached);
        self.tagged.len() + self.beyond.len() + self.answers.len() + self.flushes.len() + usize::from(serving)
    }

    /// Everything until now must have been taken with [`HddQueue::advance`]. Panics beyond the
    /// capacity and without length.
    pub fn submit(&mut self, now_ns: u64, request: HddRequest) {
        assert!(
            self.next_event_ns().is_none_or(|event_ns| event_ns >= now_ns),
            "events of the past are left"
        );
        self.statistics.requests += 1;
        match self.tagged.len() + usize::from(self.serving_command()) < self.queue_depth {
            true => self.admit(now_ns, request),
            false => self.beyond.push_back(request),
        }
        self.go_on(now_ns + self.overhead_ns);
    }

    /// Time of the next event; `None` while the drive is idle.
    pub fn next_event_ns(&self) -> Option<u64> {
        let answer_ns = self.answers.peek().map(|Reverse((at_ns, ..))| *at_ns);
        let served_ns = self.serving.as_ref().map(|(_, at_ns)| *at_ns);
        match (answer_ns, served_ns) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Advances the drive to this time, and appends the completed requests in order of time.
    pub fn advance(&mut self, now_ns: u64, completed: &mut Vec<Completed>) {
        while let Some(event_ns) = self.next_event_ns().filter(|event_ns| *event_ns <= now_ns) {
            match self.answers.peek() {
                Some(Reverse((at_ns, _, id))) if *at_ns == event_ns => {
                    completed.push(Completed { id: *id, at_ns: *at_ns });
                    self.answers.pop();
                }
                _ => self.served(event_ns),
            }
        }
    }

    fn serving_command(&self) -> bool {
        self.serving.as_ref().is_some_and(|(command, _)| !command.cached)
    }

    fn answer(&mut self, at_ns: u64, id: u64) {
        self.answered += 1;
        self.answers.push(Reverse((at_ns, self.answered, id)));
    }

    fn cable_ns(&self, sectors: u32) -> u64 {
        let bytes = u64::from(sectors) * self.sector_bytes;
        (u128::from(bytes) * 1_000_000_000 / u128::from(self.interface_bytes_per_second)) as u64
    }

    /// When data that begin to be carried at `from_ns`, or when the cable is free, are over.
    fn carried_ns(&mut self, from_ns: u64, sectors: u32) -> u64 {
        self.cable_free_ns = self.cable_free_ns.max(from_ns) + self.cable_ns(sectors);
        self.cable_free_ns
    }

    /// Starts processing a request.
    fn admit(&mut self, now_ns: u64, request: HddRequest) {
        if request.operation == HddOperation::Flush {
            return self.flush(now_ns, request.id);
        }
        assert!(request.length_bytes > 0, "a request has a length");
        let lba = request.offset_bytes / self.sector_bytes;
        let end = (request.offset_bytes + request.length_bytes).div_ceil(self.sector_bytes);
        let command = Command {
            id: request.id,
            cached: false,
            write: request.operation != HddOperation::Read,
            forced: request.operation == HddOperation::ForcedWrite,
            lba,
            sectors: (end - lba) as u32,
            target: self.hdd.target(lba),
            passed_over: 0,
            taken: 0,
        };
        assert!(end <= self.hdd.geometry().capacity_sectors(), "beyond the end of the drive");
        self.catch_up_read_ahead(now_ns);
        match command.write {
            true => {
                self.cache.written(lba, command.sectors);
                if !self.absorb(now_ns, &command) {
                    self.tagged.push(command);
                }
            }
            false => {
                let dirty = self.dirty.iter().any(|extent| extent.lba <= lba && end <= extent.end());
                if dirty || self.cache.hit(lba, command.sectors) {
                    self.statistics.read_hits += 1;
                    let carried_ns = self.carried_ns(now_ns + self.overhead_ns, command.sectors);
                    self.answer(carried_ns, command.id);
                    self.extend_read_ahead(now_ns, end);
                } else {
                    self.tagged.push(command);
                }
            }
        }
    }

    /// A hit in what was read ahead lets the stream go on; where it had stopped, it waits for the
    /// platter again.
    fn extend_read_ahead(&mut self, now_ns: u64, end: u64) {
        let limit_lba = (end + self.read_ahead_sectors).min(self.hdd.geometry().capacity_sectors());
        let Some(ahead) = &mut self.read_ahead else { return };
        let of_stream = end <= ahead.next_lba && ahead.limit_lba < limit_lba;
        if of_stream {
            if ahead.next_lba == ahead.limit_lba {
                ahead.at_ns = now_ns;
            }
            ahead.limit_lba = limit_lba;
        }
    }

    /// Takes a write into the cache, if there is room: it is answered before it is on the medium.
    fn absorb(&mut self, now_ns: u64, command: &Command) -> bool {
        if command.forced || self.dirty_extents == 0 || !self.place(command) {
            return false;
        }
        let carried_ns = self.carried_ns(now_ns + self.overhead_ns, command.sectors);
        self.answer(carried_ns, command.id);
        true
    }

    fn place(&mut self, command: &Command) -> bool {
        if self.dirty.iter().any(|extent| extent.lba <= command.lba && command.end() <= extent.end()) {
            return true;
        }
        if self.dirty_sectors + u64::from(command.sectors) > self.dirty_sectors_limit {
            return false;
        }
        let merged_sectors = MERGED_BYTES / self.sector_bytes;
        let before = self.dirty.iter().position(|extent| {
            extent.end() == command.lba && u64::from(extent.sectors + command.sectors) <= merged_sectors
        });
        match before {
            Some(at) => self.dirty[at].sectors += command.sectors,
            None if self.dirty.len() < self.dirty_extents => {
                self.taken += 1;
                self.dirty.push(Command { cached: true, passed_over: 0, taken: self.taken, ..*command });
            }
            None => return false,
        }
        self.dirty_sectors += u64::from(command.sectors);
        true
    }

    fn flush(&mut self, now_ns: u64, id: u64) {
        let destaging = self.serving.as_ref().is_some_and(|(command, _)| command.cached);
        match self.dirty.is_empty() && !destaging {
            true => self.answer(now_ns + self.overhead_ns, id),
            false => self.flushes.push((id, self.taken)),
        }
    }

    /// Completes an access.
    fn served(&mut self, now_ns: u64) {
        let (command, _) = self.serving.take().expect("an access is in flight");
        if !command.write {
            self.cache.fill(command.lba, command.sectors);
            let capacity = self.hdd.geometry().capacity_sectors();
            let limit_lba = (command.end() + self.read_ahead_sectors).min(capacity);
            self.read_ahead = Some(ReadAhead { next_lba: command.end(), at_ns: now_ns, limit_lba });
        }
        if command.cached {
            self.dirty_sectors -= u64::from(command.sectors);
        } else if command.write {
            self.answer(now_ns, command.id);
        } else {
            // Data leave as they are read, unless others are on the cable.
            let from_ns = now_ns.saturating_sub(self.cable_ns(command.sectors));
            let carried_ns = self.carried_ns(from_ns, command.sectors).max(now_ns);
            self.answer(carried_ns, command.id);
        }
        self.answer_flushes(now_ns);
        self.refill(now_ns);
        self.go_on(now_ns);
    }

    fn answer_flushes(&mut self, now_ns: u64) {
        if self.flushes.is_empty() {
            return;
        }
        let oldest = self.dirty.iter().map(|extent| extent.taken).min().unwrap_or(u64::MAX);
        for (id, taken) in std::mem::take(&mut self.flushes) {
            match taken < oldest {
                true => self.answer(now_ns, id),
                false => self.flushes.push((id, taken)),
            }
        }
    }

    /// Writes that waited for room in the cache get it, oldest first; requests that waited for a
    /// tag get one.
    fn refill(&mut self, now_ns: u64) {
        let mut at = 0;
        while at < self.tagged.len() && self.dirty.len() < self.dirty_extents {
            let command = self.tagged[at];
            match command.write && self.absorb(now_ns, &command) {
                true => drop(self.tagged.remove(at)),
                false => at += 1,
            }
        }
        while self.tagged.len() < self.queue_depth {
            let Some(request) = self.beyond.pop_front() else { return };
            self.admit(now_ns, request);
        }
    }

    /// The read-ahead has come as far as it has by now.
    fn catch_up_read_ahead(&mut self, now_ns: u64) {
        let Some(ahead) = &mut self.read_ahead else { return };
        let left = ahead.limit_lba.saturating_sub(ahead.next_lba) as u32;
        let progress = self.hdd.progress(ahead.at_ns, ahead.next_lba, left, now_ns);
        self.hdd.commit_progress(&progress);
        self.cache.fill(ahead.next_lba, progress.sectors);
        ahead.next_lba += u64::from(progress.sectors);
        ahead.at_ns = progress.at_ns;
    }

    /// Gives an idle arm its next access. An access chosen at the end of another was decoded during
    /// it.
    fn go_on(&mut self, now_ns: u64) {
        if self.serving.is_some() || (self.tagged.is_empty() && self.dirty.is_empty()) {
            return;
        }
        self.catch_up_read_ahead(now_ns);
        if let Some(ahead) = self.read_ahead.take()
            && !self.is_any_overdue()
            && let Some(at) = self.follower(&ahead)
        {
            return self.follow(now_ns, ahead, at);
        }
        let reads_first = self.dirty.len() * 4 < self.dirty_extents * 3 && self.flushes.is_empty();
        let with_dirty = !reads_first || self.tagged.is_empty();
        let tagged = nearest(&self.hdd, now_ns, &mut self.tagged);
        let dirty = match with_dirty {
            true => nearest(&self.hdd, now_ns, &mut self.dirty),
            false => None,
        };
        let command = match (tagged, dirty) {
            (Some((cost, at)), Some((other, _))) if cost <= other => self.tagged.swap_remove(at),
            (Some((_, at)), None) => self.tagged.swap_remove(at),
            (_, Some((_, at))) => self.dirty.swap_remove(at),
            (None, None) => unreachable!("there is work"),
        };
        let plan = self.hdd.plan_from(now_ns, command.lba, command.target, command.sectors, command.write);
        self.hdd.commit(&plan);
        self.count(&plan);
        self.serving = Some((command, plan.finished_ns));
    }

    fn count(&mut self, plan: &Plan) {
        self.statistics.accesses += 1;
        self.statistics.moving_ns += u64::from(plan.moving_ns);
        self.statistics.waiting_ns += plan.positioned_ns - plan.start_ns - u64::from(plan.moving_ns);
        self.statistics.transferring_ns += plan.finished_ns - plan.positioned_ns;
    }

    /// True if a request was passed over so often that no stream continues before it.
    fn is_any_overdue(&self) -> bool {
        self.tagged.iter().chain(&self.dirty).any(|command| command.passed_over >= PASSED_OVER)
    }

    /// A read that begins in what has been read ahead, or right behind.
    fn follower(&self, ahead: &ReadAhead) -> Option<usize> {
        let size = self.read_ahead_sectors;
        let near = |command: &Command| {
            !command.write
                && command.lba <= ahead.next_lba
                && command.end() > ahead.next_lba
                && ahead.next_lba - command.lba <= size
        };
        match ahead.next_lba < ahead.limit_lba {
            true => self.tagged.iter().position(near),
            false => None,
        }
    }

    /// The medium goes on passing; only what it has not read yet is waited for.
    fn follow(&mut self, now_ns: u64, ahead: ReadAhead, at: usize) {
        let command = self.tagged.swap_remove(at);
        self.tagged.iter_mut().chain(&mut self.dirty).for_each(|other| other.passed_over += 1);
        let left = (command.end() - ahead.next_lba) as u32;
        let plan = self.hdd.plan(ahead.at_ns, ahead.next_lba, left, false);
        self.hdd.commit(&plan);
        self.count(&plan);
        self.serving = Some((command, plan.finished_ns.max(now_ns)));
    }
}

/// The candidate positioned first, or one that was passed over too often; the time, or 0 for that
/// one.
fn nearest(hdd: &Hdd, now_ns: u64, candidates: &mut [Command]) -> Option<(u32, usize)> {
    let rotation_ns = hdd.rotation_ns(now_ns);
    let mut best = (u32::MAX, usize::MAX);
    for (at, command) in candidates.iter_mut().enumerate() {
        let positioning_ns = match command.passed_over < PASSED_OVER {
            true => hdd.positioning_ns(rotation_ns, &command.target, command.write, best.0),
            false => 0,
        };
        command.passed_over += 1;
        best = best.min((positioning_ns, at));
    }
    (best.1 != usize::MAX).then_some(best)
}
