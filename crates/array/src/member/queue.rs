//! Requests of a drive, waiting and in flight, by class. Requests are merged with their neighbours
//! on the drive, whichever task issued them. Plain data; `dispatch.rs` decides what goes when.
//!
//! On a seek-bound drive, requests go in the order of a sweep over it: from the end of the last one
//! onwards, and at the end again from the beginning. A request that was overtaken too often goes
//! next, so that a long stream ahead of the arm starves no other. On other drives the oldest goes
//! first.

use std::collections::{BTreeMap, VecDeque};

use slab::Slab;
use smallvec::SmallVec;
use stripewise_drive::{Buffer, Cause, CompletionSender, IoRequest, IoResult, Operation};

use crate::member::Class;
use crate::member::common::LoadElsewhere;
use crate::member::slices::{Clients, Slices};

pub(super) struct Pending {
    pub request: IoRequest,
    pub sender: CompletionSender,
    /// Retry after a merged request failed: must not be merged again.
    pub alone: bool,
    /// Reads of the same range that came while this one waited: they get a copy.
    pub same: Vec<(Buffer, CompletionSender)>,
    /// Sequence number in the class's queue.
    pub number: u64,
}

impl Pending {
    pub(super) fn new(request: IoRequest, sender: CompletionSender, alone: bool) -> Self {
        Self { request, sender, alone, same: Vec::new(), number: 0 }
    }

    /// True if this read, into one segment, can also answer the other.
    fn reads_the_same(&self, other: &IoRequest) -> bool {
        let own = &self.request;
        !self.alone
            && other.operation == Operation::Read
            && own.length_bytes == other.length_bytes
            && own.segments.len() == 1
            && other.segments.len() == 1
    }

    pub(super) fn answer(self, result: &IoResult) {
        for (memory, sender) in self.same {
            if result.is_ok() {
                memory.copy_from(&self.request.segments[0]);
            }
            sender.complete(result.clone());
        }
        self.sender.complete(result.clone());
    }
}

/// Limits of a merged request.
#[derive(Clone, Copy)]
pub(super) struct MergeLimits {
    pub max_bytes: u64,
    /// Largest hole between merged reads.
    pub gap_bytes: u64,
    /// Maximum number of memory segments.
    pub max_segments: usize,
    /// Requests go in sweeps over the drive.
    pub sweeps: bool,
}

/// Number of overtakes after which a request goes next, plus a number for each request that waits.
const MOST_OVERTAKES: u64 = 64;
const MOST_OVERTAKES_PER_WAITING: u64 = 4;
/// Values of [`merge_kind`].
const KINDS: std::ops::Range<u8> = 0..4;

#[derive(Default)]
pub(super) struct ClassQueue {
    /// Keys into `waiting`, oldest first; a key whose entry was merged away is skipped.
    pub order: VecDeque<usize>,
    pub waiting: Slab<Option<Pending>>,
    /// Mergeable requests by kind and by start or end on the drive.
    pub by_start: BTreeMap<(u8, u64), usize>,
    pub by_end: BTreeMap<(u8, u64), usize>,
    pub length: usize,
    /// Sequence number of the next request.
    pub next_number: u64,
    /// End of the last request that was sent.
    pub swept_to_bytes: u64,
    pub in_flight: usize,
    /// Service time received divided by weight: the class that is behind goes first.
    pub virtual_ns: f64,
    /// Expected service time of one dispatched request, a moving average.
    pub expected_ns: f64,
}

impl ClassQueue {
    /// True if any request waits or is in flight.
    pub(super) fn has_any(&self) -> bool {
        self.length + self.in_flight > 0
    }

    pub(super) fn push(&mut self, mut pending: Pending) {
        let request = &pending.request;
        let (operation, start, end) = (request.operation, request.offset_bytes, request.end_bytes());
        let kind = merge_kind(operation).filter(|_| !pending.alone);
        if let Some(&key) = kind.and_then(|kind| self.by_start.get(&(kind, start)))
            && let Some(waiting) = self.waiting.get_mut(key).and_then(Option::as_mut)
            && waiting.reads_the_same(&pending.request)
        {
            // Two reads that decode parts of one stripe want the same strips.
            let Pending { request, sender, .. } = pending;
            waiting.same.extend(request.segments.into_iter().next().map(|memory| (memory, sender)));
            return;
        }
        pending.number = self.next_number;
        self.next_number += 1;
        let key = self.waiting.insert(Some(pending));
        if let Some(kind) = kind {
            self.by_start.entry((kind, start)).or_insert(key);
            self.by_end.entry((kind, end)).or_insert(key);
        }
        self.order.push_back(key);
        self.length += 1;
    }

    /// Takes an entry out; its key stays in `order` until it is skipped there.
    pub(super) fn take(&mut self, key: usize) -> Pending {
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

    /// The entry that has waited longest. Drops the keys of earlier entries that were merged away
    /// or sent ahead.
    fn oldest(&mut self) -> Option<usize> {
        while let Some(&key) = self.order.front() {
            if self.waiting[key].is_some() {
                return Some(key);
            }
            self.order.pop_front();
            self.waiting.remove(key);
        }
        None
    }

    /// The entry at which the sweep continues, or the oldest if that must not wait any longer: it
    /// takes no part in sweeps, belongs to a journal, which writes wait for, or was overtaken too
    /// often.
    fn next_in_sweep(&self, oldest: usize) -> usize {
        let pending = self.waiting[oldest].as_ref().expect("the oldest waits");
        let request = &pending.request;
        let is_swept =
            !pending.alone && request.cause != Cause::Journal && merge_kind(request.operation).is_some();
        let waiting = self.length as u64;
        let overtakes = self.next_number - pending.number - waiting;
        if !is_swept || overtakes > MOST_OVERTAKES + MOST_OVERTAKES_PER_WAITING * waiting {
            return oldest;
        }
        let first_from = |from: u64| {
            let of_kind = |kind: u8| self.by_start.range((kind, from)..(kind + 1, 0)).next();
            KINDS.filter_map(of_kind).min_by_key(|((_, start), _)| *start).map(|(_, key)| *key)
        };
        first_from(self.swept_to_bytes).or_else(|| first_from(0)).unwrap_or(oldest)
    }

    fn pop_oldest(&mut self) -> Option<Pending> {
        let key = self.oldest()?;
        Some(self.take(key))
    }

    /// Takes the request whose turn it is with all waiting neighbours on the drive that fit into
    /// one request, in drive order. Reads are neighbours across a hole of up to `gap_bytes`.
    pub(super) fn pop_merged(&mut self, limits: MergeLimits) -> Option<SmallVec<[Pending; 4]>> {
        let MergeLimits { max_bytes, gap_bytes, max_segments, sweeps } = limits;
        let oldest = self.oldest()?;
        let first = if sweeps { self.next_in_sweep(oldest) } else { oldest };
        let first = self.take(first);
        let kind = merge_kind(first.request.operation).filter(|_| !first.alone);
        let gap_bytes = if first.request.operation == Operation::Read { gap_bytes } else { 0 };
        let mut segments = first.request.segments.len();
        let (mut start, mut end) = (first.request.offset_bytes, first.request.end_bytes());
        let mut parts: SmallVec<[Pending; 4]> = SmallVec::from_iter([first]);
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
        self.swept_to_bytes = end;
        Some(parts)
    }

    /// Sequence number of the request that has waited longest.
    fn oldest_number(&self) -> Option<u64> {
        let entry = |key: &usize| self.waiting.get(*key).and_then(Option::as_ref);
        self.order.iter().find_map(entry).map(|pending| pending.number)
    }

    /// State of this queue, as input for the slices.
    pub(super) fn clients(&self) -> Clients {
        Clients { oldest: self.oldest_number(), next: self.next_number }
    }

    pub(super) fn drain(&mut self) -> Vec<Pending> {
        std::iter::from_fn(|| self.pop_oldest()).collect()
    }
}

/// Kind of a request for merging: requests of one kind can be merged; `None`: never merged.
pub(super) fn merge_kind(operation: Operation) -> Option<u8> {
    match operation {
        Operation::Read => Some(0),
        Operation::Write { fua: false } => Some(1),
        Operation::Write { fua: true } => Some(2),
        Operation::WriteZeroes => Some(3),
        Operation::Flush | Operation::Discard => None,
    }
}

/// A request in flight, merged or not.
pub(super) struct Flight {
    pub parts: SmallVec<[Pending; 4]>,
    pub class: Class,
    pub bytes: u64,
    pub dispatched_ns: u64,
    pub charged_ns: f64,
    pub serial: u64,
}

#[derive(Default)]
pub(super) struct Queue {
    pub foreground: ClassQueue,
    pub background: ClassQueue,
    pub upkeep: ClassQueue,
    pub flights: Slab<Flight>,
    pub in_flight_bytes: u64,
    pub last_completion_ns: u64,
    pub last_foreground_ns: u64,
    pub last_upkeep_ns: u64,
    pub next_serial: u64,
    pub answers: Vec<(u64, IoResult)>,
    /// Answers to reads that wait for the end of a flush of another thread.
    pub held: Vec<(u64, IoResult)>,
    /// Service times that other threads had from the drive when they were last looked at.
    pub elsewhere: LoadElsewhere,
    pub flushes: FlushQueue,
    /// Slices of background work; `None` unless its effect on clients' latency is bounded.
    pub slices: Option<Slices>,
}

/// The flushes of a drive: one is in flight or queued; the others wait for it to end.
#[derive(Default)]
pub(super) struct FlushQueue {
    pub is_under_way: bool,
    /// The next one to send, while a flush of another thread is with the drive.
    pub next: Option<(Class, Pending)>,
    /// Flushes that the one in flight also answers.
    pub joined: Vec<CompletionSender>,
    /// Flushes that came after it was sent.
    pub waiting: Vec<CompletionSender>,
}

impl FlushQueue {
    /// Ends the flush in flight: returns the others that share its answer, and the next flush to
    /// send.
    pub(super) fn landed(&mut self) -> (Vec<CompletionSender>, Option<Pending>) {
        let joined = std::mem::take(&mut self.joined);
        let mut next = std::mem::take(&mut self.waiting).into_iter();
        let first = next.next();
        self.is_under_way = first.is_some();
        self.joined = next.collect();
        let flush = |sender| Pending::new(IoRequest::flush(), sender, true);
        (joined, first.map(flush))
    }

    /// Takes all flushes that are not in the queue themselves.
    pub(super) fn drain(&mut self) -> Vec<CompletionSender> {
        let Self { joined, waiting, next, .. } = std::mem::take(self);
        let next = next.map(|(_, pending)| pending.sender);
        joined.into_iter().chain(waiting).chain(next).collect()
    }
}

impl Queue {
    pub(super) fn of(&mut self, class: Class) -> &mut ClassQueue {
        match class {
            Class::Foreground => &mut self.foreground,
            Class::Background => &mut self.background,
            Class::Upkeep => &mut self.upkeep,
        }
    }

    pub(super) fn all(&self) -> [&ClassQueue; 3] {
        [&self.foreground, &self.background, &self.upkeep]
    }

    pub(super) fn requests_in_flight(&self) -> usize {
        self.all().iter().map(|queue| queue.in_flight).sum()
    }
}

pub(super) fn token_of(key: usize, serial: u64) -> u64 {
    (serial << 20) | key as u64
}

pub(super) fn key_of(token: u64) -> usize {
    (token & 0xF_FFFF) as usize
}

/// One request for all parts, in drive order. Holes between reads go into `gap_buffer`.
pub(super) fn merged_request(parts: &[Pending], gap_buffer: &Buffer) -> IoRequest {
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
            let filler = if phantom { Buffer::phantom(hole) } else { gap_buffer.slice(0..hole) };
            merged.segments.push(filler);
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

#[cfg(test)]
mod tests {
    use stripewise_drive::completion;

    use super::*;

    const LIMITS: MergeLimits =
        MergeLimits { max_bytes: 16384, gap_bytes: 4096, max_segments: 16, sweeps: false };

    /// Reads or writes of 4 KiB at these places, oldest first.
    fn queue(is_read: bool, places: &[u64]) -> ClassQueue {
        let mut queue = ClassQueue::default();
        for &place in places {
            let buffer = Buffer::from_bytes(&[0; 4096]);
            let request = match is_read {
                true => IoRequest::read(place, buffer),
                false => IoRequest::write(place, buffer, false),
            };
            queue.push(Pending::new(request, completion().0, false));
        }
        queue
    }

    fn taken(queue: &mut ClassQueue) -> Vec<u64> {
        let parts = queue.pop_merged(LIMITS).unwrap_or_default();
        parts.iter().map(|part| part.request.offset_bytes).collect()
    }

    #[test]
    fn oldest_write_takes_its_neighbours_in_drive_order() {
        let mut writes = queue(false, &[8192, 65536, 12288, 4096, 20480]);
        assert_eq!(taken(&mut writes), [4096, 8192, 12288]);
        assert_eq!(taken(&mut writes), [65536]);
        assert_eq!(taken(&mut writes), [20480]);
        assert!(taken(&mut writes).is_empty() && writes.length == 0);
    }

    #[test]
    fn reads_merge_over_gaps_up_to_the_largest_request() {
        let mut reads = queue(true, &[0, 8192, 12288, 16384]);
        assert_eq!(taken(&mut reads), [0, 8192, 12288]);
        assert_eq!(taken(&mut reads), [16384]);
        assert_eq!(taken(&mut queue(false, &[0, 8192])), [0]);
        let mut far = queue(true, &[0, 16384]);
        assert_eq!((taken(&mut far), taken(&mut far)), (vec![0], vec![16384]));
    }

    #[test]
    fn retried_request_is_not_merged() {
        let mut writes = queue(false, &[4096]);
        let parts = writes.pop_merged(LIMITS).expect("one");
        parts.into_iter().for_each(|part| writes.push(Pending { alone: true, ..part }));
        let neighbour = IoRequest::write(0, Buffer::from_bytes(&[0; 4096]), false);
        writes.push(Pending::new(neighbour, completion().0, false));
        assert_eq!(taken(&mut writes), [4096]);
        assert_eq!(taken(&mut writes), [0]);
    }

    /// As [`LIMITS`], for a seek-bound drive.
    const ARM: MergeLimits = MergeLimits { max_bytes: 4096, sweeps: true, ..LIMITS };

    fn next_of_arm(queue: &mut ClassQueue) -> u64 {
        queue.pop_merged(ARM).expect("something waits")[0].request.offset_bytes
    }

    #[test]
    fn an_arm_sweeps_over_the_drive_and_begins_again() {
        let mut writes = queue(false, &[1 << 20, 9 << 20, 3 << 20]);
        assert_eq!((next_of_arm(&mut writes), next_of_arm(&mut writes)), (1 << 20, 3 << 20));
        let behind = IoRequest::read(2 << 20, Buffer::from_bytes(&[0; 4096]));
        writes.push(Pending::new(behind, completion().0, false));
        assert_eq!((next_of_arm(&mut writes), next_of_arm(&mut writes)), (9 << 20, 2 << 20));
        assert!(writes.pop_merged(ARM).is_none() && writes.length == 0 && writes.order.is_empty());
    }

    #[test]
    fn streams_ahead_of_the_arm_starve_no_request() {
        let mut writes = queue(false, &[512 << 20]);
        assert_eq!(next_of_arm(&mut writes), 512 << 20);
        let put = |queue: &mut ClassQueue, place: u64| {
            let request = IoRequest::write(place, Buffer::from_bytes(&[0; 4096]), false);
            queue.push(Pending::new(request, completion().0, false));
        };
        put(&mut writes, 0);
        let stream = (513..2000).map(|mib| mib << 20);
        let until = stream.take_while(|place| {
            put(&mut writes, *place);
            next_of_arm(&mut writes) != 0
        });
        let overtakes = until.count() as u64;
        assert!(overtakes <= MOST_OVERTAKES + 2 * MOST_OVERTAKES_PER_WAITING + 1, "{overtakes}");
    }

    #[test]
    fn request_outside_sweeps_is_sent_when_oldest() {
        let mut writes = queue(false, &[4 << 20]);
        writes.push(Pending::new(IoRequest::flush(), completion().0, false));
        let again = IoRequest::write(1 << 20, Buffer::from_bytes(&[0; 4096]), false);
        writes.push(Pending::new(again, completion().0, true));
        assert_eq!(next_of_arm(&mut writes), 4 << 20);
        let next = writes.pop_merged(ARM).expect("the flush");
        assert_eq!(next[0].request.operation, Operation::Flush);
        assert_eq!(next_of_arm(&mut writes), 1 << 20);
    }

    #[test]
    fn flushes_after_one_in_flight_share_the_next() {
        let mut flushes = FlushQueue { is_under_way: true, ..FlushQueue::default() };
        flushes.waiting.extend([completion().0, completion().0, completion().0]);
        let (joined, next) = flushes.landed();
        assert!(joined.is_empty() && next.is_some_and(|next| next.request.operation == Operation::Flush));
        assert!(flushes.is_under_way && flushes.waiting.is_empty() && flushes.joined.len() == 2);
        let (joined, next) = flushes.landed();
        assert!(joined.len() == 2 && next.is_none() && !flushes.is_under_way);
    }
}
