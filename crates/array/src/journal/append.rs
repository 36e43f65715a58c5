//! Group commit: all waiting appends go into one batch, which is written to its areas at once;
//! several batches can be in flight.
//!
//! Appends of one turn of the executor share a batch; a single append is written in the same turn.
//! A failed write is retried once; then the host is notified, and only when it has excluded the
//! drive does the batch count without that copy, after another area, if there is one, has taken it.

use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::Poll;

use futures_util::future::{join_all, select};
use smallvec::SmallVec;
use stripewise_drive::{Buffer, Cause, DriveError, IoRequest, Operation, Segments};

use super::area::{AreaHeader, KEPT_PAGES};
use super::batch::{
    self, BatchHeader, HEADER_BYTES, MAX_HEAD_BYTES, NOTE_BYTES, PAGE_BYTES, descriptor_bytes, payload_bytes,
};
use super::gathering::are_of_a_long_write;
use super::state::{Batch, Copy, State, Waiting};
use super::waiting::{Pending, RingIds, Ticket};
use super::{Inner, Journal, Kind, Record, Reservation};
use crate::error::ArrayError;
use crate::member::{Class, Member};
use crate::mutation::{self, Mutation};

/// Maximum batches in flight per area.
const MAX_IN_FLIGHT: u32 = 4;
/// Maximum batches of any size in flight per area. Further ones must have at least [`LARGE_PAGES`]:
/// each batch has a head of a page or more, and appends that wait share the head of the next one.
const SMALL_IN_FLIGHT: u32 = 2;
/// Pages of a batch from which the cost of its head is negligible.
const LARGE_PAGES: u64 = 16;
/// Maximum memory segments of one write; a batch with more is copied into one.
const MAX_SEGMENTS: usize = 480;

/// A batch to be written to its areas.
struct Work {
    number: u64,
    pages: u64,
    segments: Segments,
    rings: RingIds,
}

fn pages_of(head_bytes: u64, payload_bytes: u64) -> u64 {
    head_bytes.div_ceil(PAGE_BYTES) + payload_bytes.div_ceil(PAGE_BYTES)
}

impl Journal {
    /// Appends records, and returns their sequences when they are durable on `copies` areas. Replay
    /// finds all of them or none. If the future is dropped early, the records may stay until the
    /// journal is next opened: await it in a task that outlives the request.
    pub(crate) async fn append(
        &self,
        records: Vec<Record>,
        reservation: Reservation,
    ) -> Result<SmallVec<[u64; 4]>, ArrayError> {
        if let Some(error) = self.broken() {
            return Err(error);
        }
        let head_bytes =
            HEADER_BYTES as u64 + records.iter().map(|r| descriptor_bytes(r) as u64).sum::<u64>();
        let payload: u64 = records.iter().map(payload_bytes).sum();
        let segments = records.iter().flat_map(|r| &r.parts).map(|part| part.segments.len()).sum();
        if head_bytes + (self.0.state.borrow().batch_notes * NOTE_BYTES) as u64 > MAX_HEAD_BYTES
            || payload > u64::from(u32::MAX)
        {
            return Err(ArrayError::Journal("an append is too large for one batch".to_owned()));
        }
        let grant = reservation.take();
        assert!(pages_of(head_bytes, payload) <= grant.pages, "an append fits its reservation");
        let ticket = Rc::new(Ticket::default());
        let pending =
            Pending { records, head_bytes, payload_bytes: payload, segments, grant, ticket: ticket.clone() };
        {
            let mut state = self.0.state.borrow_mut();
            state.queue.push_back(pending);
            state.gathering.begin(self.0.context.now_ns());
        }
        self.0.wake.notify_all();
        poll_fn(|context| match ticket.result.borrow_mut().take() {
            Some(result) => Poll::Ready(result),
            None => {
                ticket.waker.set(Some(context.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }
}

/// The batch writer: runs for the journal's life and forms batches, after the tasks that append in
/// this turn.
pub(super) async fn run_batch_writer(journal: Weak<Inner>) {
    loop {
        let Some(inner) = journal.upgrade() else { return };
        let wake = inner.wake.clone();
        let woken = wake.wait();
        while let Some(work) = inner.next_work() {
            inner.context.spawn(write_batch(inner.clone(), work));
        }
        if inner.state.borrow_mut().begins_header_mark() {
            inner.context.spawn(mark_in_headers(inner.clone()));
        }
        if inner.state.borrow().broken.is_some() {
            inner.fail_waiting();
            return;
        }
        // The gathering time may end before the next wake-up.
        let until_ns = inner.state.borrow().gathers_until_ns(inner.context.now_ns());
        let context = inner.context.clone();
        drop(inner);
        match until_ns {
            None => woken.await,
            Some(until_ns) => drop(select(woken, context.sleep_until_ns(until_ns)).await),
        }
    }
}

/// Outcome of choosing areas for a batch.
enum Choice {
    Rings(RingIds),
    /// Not now: the areas have enough writes in flight, or one of them is being excluded.
    Busy,
    NoRoom,
}

impl State {
    /// Time until which the queued appends wait for more; `None` if they are written as soon as
    /// possible.
    fn gathers_until_ns(&self, now_ns: u64) -> Option<u64> {
        let is_awaited = self.queue.iter().any(|pending| !are_of_a_long_write(&pending.records))
            || !self.clients_waiting.is_empty()
            || !self.in_place_waiting.is_empty()
            || !self.destage_waiting.is_empty();
        let are_seek_bound = || self.rings.iter().any(|ring| ring.area.member.info().is_seek_bound());
        if self.queue.is_empty() || is_awaited || !are_seek_bound() {
            return None;
        }
        self.gathering.until_ns(self.queue.len(), now_ns)
    }

    /// Chooses areas for the first `count` appends in the queue as one batch.
    fn choose(&self, count: usize, base_pages: u64, pages: u64) -> Choice {
        let (longest, note_pages) = (self.longest_batch(), self.note_pages());
        let target = self.target();
        let mut roomy = 0;
        let mut found: SmallVec<[(u32, u64, u64); 8]> = SmallVec::new();
        for ring in self.rings.iter().filter(|ring| !ring.failing) {
            let own: u64 = (self.queue.iter().take(count))
                .filter(|pending| pending.grant.rings.contains(&ring.id))
                .map(|pending| pending.grant.pages)
                .sum();
            let spare = ring.usable(longest, note_pages).saturating_sub(ring.reserved - own);
            if spare < base_pages || !ring.has_room(pages) {
                continue;
            }
            roomy += 1;
            let most_in_flight = if pages < LARGE_PAGES { SMALL_IN_FLIGHT } else { MAX_IN_FLIGHT };
            if ring.in_flight < most_in_flight {
                found.push((ring.in_flight, u64::MAX - spare, ring.id));
            }
        }
        if roomy < target {
            return if self.rings.iter().any(|ring| ring.failing) { Choice::Busy } else { Choice::NoRoom };
        }
        if found.len() < target {
            return Choice::Busy;
        }
        found.sort_unstable();
        Choice::Rings(found[..target].iter().map(|&(_, _, id)| id).collect())
    }

    /// Chooses any areas that have room now, reserved or not; used after an area was lost.
    fn choose_any(&self, pages: u64) -> RingIds {
        let free = self.rings.iter().filter(|ring| ring.has_room(pages + KEPT_PAGES));
        free.take(self.target()).map(|ring| ring.id).collect()
    }

    /// Chooses areas for a mark, preferring those that hold the oldest batches, as they gain from
    /// it.
    fn choose_for_mark(&self, pages: u64) -> RingIds {
        let mut free: SmallVec<[(u64, u64); 8]> = (self.rings.iter())
            .filter(|ring| ring.has_room(pages))
            .map(|ring| (ring.oldest().unwrap_or(u64::MAX), ring.id))
            .collect();
        free.sort_unstable();
        if free.len() < self.target() || self.rings.iter().any(|ring| ring.failing) {
            return RingIds::new();
        }
        free.iter().take(self.target()).map(|&(_, id)| id).collect()
    }

    fn note_bytes(&mut self) -> u64 {
        (self.pending_notes().min(self.batch_notes) * NOTE_BYTES) as u64
    }

    /// The next batch: its number of appends and its areas. `None` if there is nothing to write, or
    /// not yet.
    fn next_batch(&mut self) -> Option<(usize, RingIds)> {
        if self.broken.is_some() {
            return None;
        }
        if self.pending_notes() > self.batch_notes && !self.queue.is_empty() {
            // These notes must be durable before the next append is acknowledged.
            let rings = self.choose_for_mark(1);
            return (!rings.is_empty()).then_some((0, rings));
        }
        if let Some(found) = self.next_group() {
            return Some(found);
        }
        let wanted = !self.queue.is_empty()
            || !self.clients_waiting.is_empty()
            || !self.in_place_waiting.is_empty()
            || !self.destage_waiting.is_empty();
        if wanted && self.unacknowledged.is_empty() && self.oldest_live() > self.durable_oldest {
            let rings = self.choose_for_mark(1);
            return (!rings.is_empty()).then_some((0, rings));
        }
        None
    }

    /// True if the oldest live batch has to be recorded in the areas' headers, because no area has
    /// room for a batch; the caller must then do so.
    fn begins_header_mark(&mut self) -> bool {
        let is_wanted = !self.queue.is_empty()
            || !self.clients_waiting.is_empty()
            || !self.in_place_waiting.is_empty()
            || !self.destage_waiting.is_empty();
        let is_due = is_wanted
            && self.broken.is_none()
            && !self.is_marking_headers
            && self.unacknowledged.is_empty()
            && self.oldest_live() > self.durable_oldest
            && !self.rings.is_empty()
            && !self.rings.iter().any(|ring| ring.failing)
            && self.choose_for_mark(1).is_empty();
        self.is_marking_headers |= is_due;
        is_due
    }

    /// As [`Self::begins_header_mark`], after an area was lost. A mark in progress may record less
    /// than the lost area had; then it is repeated.
    pub(super) fn begins_header_mark_after_loss(&mut self) -> bool {
        if self.broken.is_some() || self.rings.is_empty() {
            return false;
        }
        self.is_mark_due_again = self.is_marking_headers;
        !std::mem::replace(&mut self.is_marking_headers, true)
    }

    fn next_group(&mut self) -> Option<(usize, RingIds)> {
        let note_bytes = self.note_bytes();
        let longest = self.longest_batch();
        let (mut count, mut base_pages, mut pages) = (0, 0, 0);
        let (mut head, mut payload, mut segments) = (HEADER_BYTES as u64, 0, 0);
        let mut single = (0, 0);
        for pending in &self.queue {
            head += pending.head_bytes - HEADER_BYTES as u64;
            payload += pending.payload_bytes;
            segments += pending.segments;
            let (base, whole) = (pages_of(head, payload), pages_of(head + note_bytes, payload));
            let full = head + payload > self.batch_bytes
                || segments > MAX_SEGMENTS
                || base > longest
                || head + note_bytes > MAX_HEAD_BYTES;
            if count > 0 && full {
                break;
            }
            (count, base_pages, pages) = (count + 1, base, whole);
            if count == 1 {
                single = (base, whole);
            }
        }
        if count == 0 {
            return None;
        }
        match self.choose(count, base_pages, pages) {
            Choice::Rings(rings) => return Some((count, rings)),
            Choice::Busy => return None,
            Choice::NoRoom => {}
        }
        match self.choose(1, single.0, single.1) {
            Choice::Rings(rings) => Some((1, rings)),
            Choice::Busy => None,
            Choice::NoRoom => {
                let rings = self.choose_any(single.1);
                (!rings.is_empty()).then_some((1, rings))
            }
        }
    }
}

impl Inner {
    fn next_work(&self) -> Option<Work> {
        let mut state = self.state.borrow_mut();
        if state.rings.is_empty() && !state.queue.is_empty() {
            state.fail_all(super::no_area());
        }
        if state.gathers_until_ns(self.context.now_ns()).is_some() {
            return None;
        }
        let (count, rings) = state.next_batch()?;
        Some(self.compose(&mut state, count, rings))
    }

    /// Forms a batch of the first `count` appends in the queue, to be written to all of `rings`.
    fn compose(&self, state: &mut State, count: usize, rings: RingIds) -> Work {
        let group: SmallVec<[Pending; 8]> = state.queue.drain(..count).collect();
        if count > 0 {
            let left = state.queue.len();
            state.gathering.took(count, left, self.context.now_ns());
        }
        let notes = state.take_notes(state.batch_notes);
        let records: u64 = group.iter().map(|pending| pending.records.len() as u64).sum();
        let fields: u64 = group.iter().map(|pending| pending.head_bytes - HEADER_BYTES as u64).sum();
        let head_bytes =
            (HEADER_BYTES as u64 + fields + (notes.len() * NOTE_BYTES) as u64).next_multiple_of(PAGE_BYTES);
        let header = BatchHeader {
            volume_id: self.volume_id,
            epoch: self.epoch,
            number: state.next_number,
            written_at: state.next_number,
            first_sequence: state.next_sequence,
            oldest_live: state.oldest_live(),
            acknowledged: state.last_acknowledged,
            records: records as u32,
            notes: notes.len() as u32,
            head_bytes,
            payload_bytes: group.iter().map(|pending| pending.payload_bytes).sum(),
        };
        let head = self.buffers.allocate(head_bytes as usize);
        batch::encode(&head, &header, group.iter().flat_map(|pending| &pending.records), &notes);

        let pages = header.pages();
        let mut entry = Batch::new(header.number, header.first_sequence, records, pages, header.oldest_live);
        for (index, record) in group.iter().flat_map(|pending| &pending.records).enumerate() {
            if record.kind == Kind::Data {
                entry.set_to_destage(index as u64);
            }
        }
        if state.notes.is_empty() {
            entry.says_released = state.released;
        }
        for id in &rings {
            let ring = state.ring(*id).expect("chosen from those there are");
            let start = ring.allocate(header.number, pages).expect("chosen because it has room");
            ring.in_flight += 1;
            entry.copies.push(Copy { ring: *id, start });
        }
        let mut segments = Segments::from_iter([head]);
        let mut sequence = header.first_sequence;
        for pending in group {
            state.give_back(&pending.grant);
            entry.waiting.push((pending.ticket, sequence, pending.records.len() as u64));
            sequence += pending.records.len() as u64;
            let parts = pending.records.into_iter().flat_map(|record| record.parts);
            segments.extend(parts.flat_map(|part| part.segments));
        }
        let padding = (pages * PAGE_BYTES - head_bytes - header.payload_bytes) as usize;
        if padding > 0 {
            segments.push(self.zeroes.slice(0..padding));
        }
        if segments.len() > MAX_SEGMENTS + 2 {
            segments = self.copied_together(&segments);
        }
        state.next_number += 1;
        state.next_sequence = sequence;
        state.live_records += records;
        state.unacknowledged.push_back(header.number);
        state.hold(entry);
        Work { number: header.number, pages, segments, rings }
    }

    fn copied_together(&self, segments: &[Buffer]) -> Segments {
        let whole = self.buffers.allocate(segments.iter().map(Buffer::len).sum());
        let mut at = 0;
        for segment in segments {
            whole.slice(at..at + segment.len()).copy_from(segment);
            at += segment.len();
        }
        Segments::from_iter([whole])
    }

    /// Writes an empty batch to all areas that have room; durable on return.
    pub(super) async fn mark_everywhere(self: &Rc<Self>) -> Result<(), ArrayError> {
        let work = {
            let mut state = self.state.borrow_mut();
            let rings: RingIds =
                state.rings.iter().filter(|ring| ring.has_room(1)).map(|ring| ring.id).collect();
            if state.rings.is_empty() {
                return Err(super::no_area());
            }
            if rings.is_empty() {
                // The areas' headers have recorded the same already.
                return Ok(());
            }
            self.compose(&mut state, 0, rings)
        };
        write_batch(self.clone(), work).await;
        self.state.borrow().broken.clone().map_or(Ok(()), Err)
    }

    /// Writes one copy of a batch. `false` if the area is gone.
    pub(super) async fn write_copy(
        &self,
        ring: u64,
        start: u64,
        segments: &Segments,
    ) -> Result<bool, ArrayError> {
        let place = {
            let mut state = self.state.borrow_mut();
            if let Some(error) = &state.broken {
                // Also after closing: no write may begin then, since the area may soon belong to
                // another volume.
                return Err(error.clone());
            }
            let ring = state.ring(ring);
            ring.map(|ring| (ring.area.member.clone(), ring.offset_bytes(start), ring.area.drive))
        };
        let Some((member, offset_bytes, drive)) = place else { return Ok(false) };
        let in_flight = self.writes.begin();
        if write_fua(&member, offset_bytes, segments).await.is_ok() {
            return Ok(self.state.borrow_mut().ring(ring).is_some());
        }
        let again = write_fua(&member, offset_bytes, segments).await;
        drop(in_flight);
        match again {
            Ok(()) => Ok(self.state.borrow_mut().ring(ring).is_some()),
            Err(error) => self.area_failed(ring, drive, &error).await.map(|()| false),
        }
    }

    /// Has the host exclude the drive, once; returns when its area is gone.
    pub(super) async fn area_failed(
        &self,
        ring: u64,
        drive: u32,
        error: &DriveError,
    ) -> Result<(), ArrayError> {
        let first = match self.state.borrow_mut().ring(ring) {
            None => return Ok(()),
            Some(ring) => !std::mem::replace(&mut ring.failing, true),
        };
        if first {
            let answer = self.host.area_failed(drive, error).await;
            let mut state = self.state.borrow_mut();
            match answer {
                Ok(()) => state.remove_ring(ring),
                Err(error) => state.fail_all(error),
            }
            drop(state);
            self.areas_changed.notify_all();
            self.changed();
        }
        loop {
            let changed = self.areas_changed.wait();
            {
                let mut state = self.state.borrow_mut();
                if let Some(error) = &state.broken {
                    return Err(error.clone());
                }
                if state.ring(ring).is_none() {
                    return Ok(());
                }
            }
            changed.await;
        }
    }

    /// Allocates another area for a batch that lacks copies. `None` if it has as many as currently
    /// possible.
    async fn another_place(&self, number: u64, pages: u64) -> Result<Option<Copy>, ArrayError> {
        loop {
            let woken = self.wake.wait();
            {
                let mut state = self.state.borrow_mut();
                if let Some(error) = &state.broken {
                    return Err(error.clone());
                }
                if state.rings.is_empty() {
                    return Err(super::no_area());
                }
                let target = state.target();
                let has: RingIds = state.batch(number).copies.iter().map(|copy| copy.ring).collect();
                if has.len() >= target {
                    return Ok(None);
                }
                let free = |ring: &&mut super::Ring| {
                    !ring.failing && !has.contains(&ring.id) && ring.has_room(pages + KEPT_PAGES)
                };
                if let Some(ring) = state.rings.iter_mut().find(free) {
                    let start = ring.allocate(number, pages).expect("it has room");
                    ring.in_flight += 1;
                    let copy = Copy { ring: ring.id, start };
                    state.batch(number).copies.push(copy);
                    return Ok(Some(copy));
                }
                if !has.is_empty() && !state.rings.iter().any(|ring| ring.failing) {
                    return Ok(None);
                }
            }
            woken.await;
        }
    }

    fn landed(&self, ring: u64) {
        if let Some(ring) = self.state.borrow_mut().ring(ring) {
            ring.in_flight -= 1;
        }
    }

    /// Fails all waiting appends once the journal is broken.
    fn fail_waiting(&self) {
        let (error, failed) = {
            let mut state = self.state.borrow_mut();
            let Some(error) = state.broken.clone() else { return };
            (error, state.take_failed())
        };
        for (ticket, ..) in failed {
            ticket.complete(Err(error.clone()));
        }
        self.grant();
    }
}

async fn copies_of(inner: &Rc<Inner>, work: &Work) -> Result<(), ArrayError> {
    let first: SmallVec<[Copy; 3]> = inner.state.borrow_mut().batch(work.number).copies.clone();
    let gone = first.len() < work.rings.len();
    let writes = first.iter().map(|copy| async move {
        let result = inner.write_copy(copy.ring, copy.start, &work.segments).await;
        inner.landed(copy.ring);
        result
    });
    let mut all_there = !gone;
    for result in join_all(writes).await {
        all_there &= result?;
    }
    if all_there && inner.state.borrow_mut().batch(work.number).copies.len() == first.len() {
        return Ok(());
    }
    while let Some(copy) = inner.another_place(work.number, work.pages).await? {
        let result = inner.write_copy(copy.ring, copy.start, &work.segments).await;
        inner.landed(copy.ring);
        result?;
    }
    Ok(())
}

/// Records the oldest live batch in the areas' headers: if no area has room for a batch that
/// records it, or if a lost area may have held the only record of it.
pub(super) async fn mark_in_headers(inner: Rc<Inner>) {
    loop {
        mark_in_headers_once(&inner).await;
        let mut state = inner.state.borrow_mut();
        state.is_marking_headers = false;
        if !std::mem::take(&mut state.is_mark_due_again) || !state.begins_header_mark_after_loss() {
            break;
        }
    }
    inner.fail_waiting();
    inner.changed();
}

async fn mark_in_headers_once(inner: &Rc<Inner>) {
    let (oldest_live, areas) = {
        let state = inner.state.borrow();
        if state.broken.is_some() {
            // Its areas may belong to another volume.
            return;
        }
        let areas: Vec<_> =
            state.rings.iter().map(|ring| (ring.id, ring.area.clone(), ring.header)).collect();
        (state.oldest_live(), areas)
    };
    let writes = areas.iter().map(|(id, area, (page, from_batch))| {
        let inner = inner.clone();
        async move {
            let header = AreaHeader {
                epoch: inner.epoch,
                opening: inner.opening,
                from_batch: *from_batch,
                oldest_live,
            };
            let other = 1 - page;
            let in_flight = inner.writes.begin();
            let segments = Segments::from_iter([header.encode(inner.volume_id, area, &inner.buffers)]);
            for attempt in 0..2 {
                match write_fua(&area.member, area.base_bytes + other * PAGE_BYTES, &segments).await {
                    Ok(()) => break,
                    Err(_) if attempt == 0 => {}
                    Err(error) => {
                        drop(in_flight);
                        return inner.area_failed(*id, area.drive, &error).await;
                    }
                }
            }
            if let Some(ring) = inner.state.borrow_mut().ring(*id) {
                ring.header.0 = other;
            }
            Ok(())
        }
    });
    let marked: Result<Vec<()>, ArrayError> = join_all(writes).await.into_iter().collect();
    let mut state = inner.state.borrow_mut();
    match marked {
        Ok(_) => state.note_durable_oldest(oldest_live),
        Err(error) => state.fail_all(error),
    }
}

/// Writes a batch to its areas and completes its appends.
async fn write_batch(inner: Rc<Inner>, work: Work) {
    let begun_ns = inner.context.now_ns();
    let result = copies_of(&inner, &work).await;
    let completed: Vec<Waiting> = {
        let mut state = inner.state.borrow_mut();
        state.gathering.landed(inner.context.now_ns() - begun_ns);
        match result {
            Ok(()) => {
                state.batch(work.number).durable = true;
                match state.broken {
                    None => state.acknowledge(),
                    Some(_) => Vec::new(),
                }
            }
            Err(error) => {
                state.fail_all(error);
                Vec::new()
            }
        }
    };
    for (ticket, first, count) in completed {
        ticket.complete(Ok((first..first + count).collect()));
    }
    inner.fail_waiting();
    inner.areas_changed.notify_all();
    inner.changed();
}

/// One FUA write to a member.
pub(super) async fn write_fua(
    member: &Rc<Member>,
    offset_bytes: u64,
    segments: &Segments,
) -> Result<(), DriveError> {
    let fua = !mutation::is_chosen(Mutation::JournalNotDurable);
    let request = IoRequest::with_segments(Operation::Write { fua }, offset_bytes, segments.clone());
    member.submit(Class::Foreground, request.because(Cause::Journal)).await
}
