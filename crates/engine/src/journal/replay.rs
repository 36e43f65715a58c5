//! Opening a journal after a crash: finding what was not released.
//!
//! Every area is read once for the heads of batches, page by page through a window, so that memory does not grow with the
//! area. Of the batches that can matter the payload is read and checked too, and forgotten again: [`Journal::load`] reads
//! it when it is needed. Before `open` ends, what was found is on as many areas as an acknowledged append would be, so that
//! putting it in place can be interrupted and begun again.
//!
//! Faults expected: everything. Garbage and torn batches are passed over, pages that cannot be read count as garbage, a
//! drive that fails altogether is excluded through the host.

use std::collections::BTreeMap;
use std::rc::Rc;

use futures_util::future::join_all;
use stripewise_drive::{Buffer, BufferPool, Context, DriveError, IoRequest, Segments};

use super::append::write_fua;
use super::area::{Area, AreaHeader, HEADER_PAGES, MIN_AREA_BYTES, Ring};
use super::batch::{self, BatchHeader, Head, PAGE_BYTES, Payload};
use super::state::{Batch, Copy, State};
use super::{Inner, Journal, JournalHost, OPENING_SHIFT, Record};
use crate::error::ArrayError;
use crate::member::Class;

/// Pages read at a time while looking for heads.
const WINDOW_PAGES: u64 = 256;

/// A record that was not released. Its parts hold phantoms; [`Journal::load`] gives the bytes.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub record: Record,
    payload: Payload,
}

/// What a journal held when it was opened.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    /// Not released, in the order of sequences.
    pub records: Vec<Found>,
    /// Highest number ever settled.
    pub settled: u64,
    /// Acknowledged batches that may hold unreleased records and are on none of the areas: more was lost than the copies
    /// could cover.
    pub missing_batches: u64,
    /// Drives whose area held nothing of this journal and was begun afresh.
    pub blank: Vec<u32>,
    /// None of the areas held anything of this journal: whatever was in it is lost.
    pub began_anew: bool,
}

/// The head of a batch, seen in an area.
#[derive(Clone, Copy)]
struct Seen {
    start: u64,
    header: BatchHeader,
}

struct Scan {
    area: Area,
    /// `None`: nothing of ours in it.
    header: Option<(AreaHeader, usize)>,
    seen: Vec<Seen>,
    /// Reading failed for good.
    failed: Option<DriveError>,
    /// End of the newest batch.
    head: u64,
}

/// A batch with every byte of at least one copy checked.
struct Whole {
    head: Head,
    /// Index of the scan, and where in its ring.
    copies: Vec<(usize, u64)>,
}

async fn read(
    area: &Area,
    buffers: &BufferPool,
    offset_bytes: u64,
    bytes: u64,
) -> Result<Buffer, DriveError> {
    let buffer = buffers.allocate(bytes as usize);
    let at = area.base_bytes + offset_bytes;
    area.member.submit(Class::Foreground, IoRequest::read(at, buffer.clone())).await?;
    Ok(buffer)
}

/// Reads a ring, keeping the last window.
struct Window<'a> {
    area: &'a Area,
    buffers: &'a BufferPool,
    ring_pages: u64,
    first: u64,
    pages: u64,
    buffer: Buffer,
}

impl<'a> Window<'a> {
    fn new(area: &'a Area, buffers: &'a BufferPool) -> Self {
        let ring_pages = area.bytes / PAGE_BYTES - HEADER_PAGES;
        Self { area, buffers, ring_pages, first: 0, pages: 0, buffer: Buffer::phantom(0) }
    }

    /// These pages of the ring, zeros where they cannot be read; the caller sees to it that they lie within.
    async fn pages(&mut self, start: u64, count: u64) -> Buffer {
        if start < self.first || start + count > self.first + self.pages {
            let pages = count.max(WINDOW_PAGES).min(self.ring_pages - start);
            self.buffer = self.load(start, pages).await;
            (self.first, self.pages) = (start, pages);
        }
        let from = ((start - self.first) * PAGE_BYTES) as usize;
        self.buffer.slice(from..from + (count * PAGE_BYTES) as usize)
    }

    async fn load(&self, start: u64, pages: u64) -> Buffer {
        let at = (HEADER_PAGES + start) * PAGE_BYTES;
        if let Ok(buffer) = read(self.area, self.buffers, at, pages * PAGE_BYTES).await {
            return buffer;
        }
        let whole = self.buffers.allocate_zeroed((pages * PAGE_BYTES) as usize);
        for page in 0..pages {
            if self.area.member.is_failed() {
                break;
            }
            if let Ok(one) = read(self.area, self.buffers, at + page * PAGE_BYTES, PAGE_BYTES).await {
                let from = (page * PAGE_BYTES) as usize;
                whole.slice(from..from + PAGE_BYTES as usize).copy_from(&one);
            }
        }
        whole
    }
}

async fn read_header(
    area: &Area,
    volume_id: u128,
    buffers: &BufferPool,
) -> Result<Option<(AreaHeader, usize)>, DriveError> {
    let mut best: Option<(AreaHeader, usize)> = None;
    let mut failure = None;
    for slot in 0..HEADER_PAGES as usize {
        let at = slot as u64 * PAGE_BYTES;
        let mut page = read(area, buffers, at, PAGE_BYTES).await;
        if page.is_err() {
            page = read(area, buffers, at, PAGE_BYTES).await;
        }
        match page {
            Ok(page) => {
                let found = page.with(|bytes| AreaHeader::decode(bytes, volume_id, area)).flatten();
                best = best.max(found.map(|header| (header, slot)));
            }
            Err(error) => failure = Some(error),
        }
    }
    match (best, failure) {
        (None, Some(error)) => Err(error),
        (best, _) => Ok(best),
    }
}

/// Finds the heads in an area: at most one per page, some hundred bytes each.
async fn scan(area: &Area, header: AreaHeader, volume_id: u128, buffers: &BufferPool) -> Vec<Seen> {
    let mut window = Window::new(area, buffers);
    let mut seen: Vec<Seen> = Vec::new();
    for page in 0..window.ring_pages {
        let first = window.pages(page, 1).await;
        let header_of = |bytes: &[u8]| batch::decode_header(bytes, volume_id, header.epoch);
        let Some(found) = first.with(header_of).flatten() else { continue };
        if found.written_at < header.from_batch
            || found.written_at >> OPENING_SHIFT > header.opening
            || found.pages() > window.ring_pages - page
        {
            continue;
        }
        let head = window.pages(page, found.head_bytes / PAGE_BYTES).await;
        if head.with(batch::head_is_whole) == Some(true) {
            seen.push(Seen { start: page, header: found });
        }
    }
    seen
}

/// Reads a whole batch and checks every byte of it.
async fn verify(area: &Area, seen: &Seen, buffers: &BufferPool) -> Option<Head> {
    let mut window = Window::new(area, buffers);
    let whole = window.pages(seen.start, seen.header.pages()).await;
    let head = whole.slice(0..seen.header.head_bytes as usize);
    let decoded =
        head.with(|bytes| batch::decode(bytes, seen.header.volume_id, seen.header.epoch)).flatten()?;
    // Padding to whole pages is not part of any checksum; it carries nothing.
    let sound = decoded.records.iter().all(|(_, payload)| payload_is_sound(&whole, payload));
    (decoded.header == seen.header && sound).then_some(decoded)
}

fn payload_is_sound(whole: &Buffer, payload: &Payload) -> bool {
    let bytes = whole.slice(payload.at as usize..(payload.at + payload.bytes) as usize);
    payload.phantom || batch::checksum([&bytes]).0 == payload.crc
}

impl Journal {
    /// Opens what is in the areas, which must be those of drives that are current: every area that took part in what was
    /// last acknowledged, less those lost. Where none of them holds anything of it the journal begins anew with
    /// `fresh_epoch`, never used before with this `volume_id`; an error without one.
    pub async fn open(
        context: &Context,
        buffers: &BufferPool,
        volume_id: u128,
        fresh_epoch: Option<u64>,
        areas: Vec<Area>,
        copies: usize,
        host: Rc<dyn JournalHost>,
    ) -> Result<(Self, Replay), ArrayError> {
        if buffers.is_phantom() {
            // A model without bytes keeps nothing: the journal is as it was left after closing.
            let journal = Self::create(context, buffers, volume_id, 1, areas, copies, host).await?;
            return Ok((journal, Replay::default()));
        }
        if let Some(small) = areas.iter().find(|area| area.bytes < MIN_AREA_BYTES) {
            return Err(super::too_small(small));
        }
        let mut scans = read_all(areas, volume_id, buffers).await;
        let newest = scans.iter().filter_map(|scan| scan.header).map(|(header, _)| header).max();
        let began_anew = newest.is_none();
        let fresh = |epoch| AreaHeader { epoch, opening: 0, from_batch: 0, oldest_live: 0 };
        let newest = newest.or(fresh_epoch.map(fresh)).ok_or_else(super::no_area)?;
        let oldest_live =
            scans.iter().flat_map(|scan| &scan.seen).map(|seen| seen.header.oldest_live).max().unwrap_or(0);
        let in_headers = scans.iter().filter_map(|scan| scan.header).map(|(header, _)| header.oldest_live);
        let oldest_live = in_headers.fold(oldest_live, u64::max);
        let batches = verify_all(&scans, oldest_live, buffers).await;

        let opening = newest.opening + 1;
        let journal = Self::assemble(context, buffers, volume_id, newest.epoch, opening, copies, host);
        let mut replay = journal.0.restore(&mut scans, batches, oldest_live);
        replay.began_anew = began_anew;
        replay.blank = (scans.iter())
            .filter(|scan| scan.failed.is_none() && scan.header.is_none())
            .map(|scan| scan.area.drive)
            .collect();
        journal.0.begin_opening(&scans).await?;
        journal.0.mark_everywhere().await?;
        journal.restore_copies().await?;
        Ok((journal, replay))
    }

    /// A found record with its bytes.
    pub async fn load(&self, found: &Found) -> Result<Record, ArrayError> {
        let mut record = found.record.clone();
        let Payload { at, bytes, .. } = found.payload;
        if bytes == 0 {
            return Ok(record);
        }
        let places = self.0.places_of(record.sequence);
        for (area, start) in places {
            // Whole pages around it, so that any drive's blocks are kept to.
            let first = at / PAGE_BYTES * PAGE_BYTES;
            let end = (at + bytes).next_multiple_of(PAGE_BYTES);
            let from = (HEADER_PAGES + start) * PAGE_BYTES + first;
            let Ok(pages) = read(&area, &self.0.buffers, from, end - first).await else { continue };
            let payload = Payload { at: at - first, ..found.payload };
            if !payload_is_sound(&pages, &payload) {
                continue;
            }
            let mut at = payload.at as usize;
            for part in &mut record.parts {
                let length = part.len() as usize;
                part.segments = Segments::from_iter([pages.slice(at..at + length)]);
                at += length;
            }
            return Ok(record);
        }
        Err(ArrayError::Journal(format!(
            "entry {} (stripe {}) can be read on none of its drives any more",
            record.sequence, record.stripe
        )))
    }

    /// Gives batches in use that have fewer copies than they should further ones, where there is room: after an area was
    /// lost or came in. Gives how many still lack some.
    pub async fn restore_copies(&self) -> Result<u64, ArrayError> {
        let inner = &self.0;
        let numbers: Vec<u64> = {
            let state = inner.state.borrow();
            let target = state.target();
            let lacks = |batch: &&Batch| batch.acknowledged && state.copies_of(batch) < target;
            state.batches.iter().filter(lacks).map(|batch| batch.number).collect()
        };
        let mut lacking = 0;
        for number in numbers {
            while let Some(whole) = inner.next_restore(number) {
                if !inner.restore_copy(number, whole).await? {
                    lacking += 1;
                    break;
                }
            }
        }
        Ok(lacking)
    }
}

async fn read_all(areas: Vec<Area>, volume_id: u128, buffers: &BufferPool) -> Vec<Scan> {
    let headers = join_all(areas.iter().map(|area| read_header(area, volume_id, buffers))).await;
    let epoch = headers.iter().flatten().flatten().map(|(header, _)| header.epoch).max();
    let scans = areas.iter().zip(headers).map(|(area, header)| async move {
        let mut scan = Scan { area: area.clone(), header: None, seen: Vec::new(), failed: None, head: 0 };
        match header {
            Err(error) => scan.failed = Some(error),
            Ok(header) => scan.header = header.filter(|(header, _)| Some(header.epoch) == epoch),
        }
        if let Some((header, _)) = scan.header {
            scan.seen = self::scan(area, header, volume_id, buffers).await;
            scan.head = head_of(&scan.seen);
        }
        scan
    });
    join_all(scans).await
}

/// Where the copy written last ends. Copies made up later lie one behind the other with one `written_at`, the batch of that
/// number behind them.
fn head_of(seen: &[Seen]) -> u64 {
    let Some(last) = seen.iter().map(|seen| seen.header.written_at).max() else { return 0 };
    let newest = || seen.iter().filter(|seen| seen.header.written_at == last);
    let end = |seen: &Seen| seen.start + seen.header.pages();
    if let Some(own) = newest().find(|seen| seen.header.number == last) {
        return end(own);
    }
    let is_last = |one: &&Seen| newest().all(|other| other.start != end(one));
    newest().filter(is_last).map(end).min().unwrap_or(0)
}

/// All batches from `oldest_live` on of which a copy is whole.
async fn verify_all(scans: &[Scan], oldest_live: u64, buffers: &BufferPool) -> BTreeMap<u64, Whole> {
    let checks = scans.iter().enumerate().map(|(index, scan)| async move {
        let mut whole = Vec::new();
        for seen in scan.seen.iter().filter(|seen| seen.header.number >= oldest_live) {
            if let Some(head) = verify(&scan.area, seen, buffers).await {
                whole.push((head, index, seen.start));
            }
        }
        whole
    });
    let mut batches: BTreeMap<u64, Whole> = BTreeMap::new();
    for (head, index, start) in join_all(checks).await.into_iter().flatten() {
        let header = head.header;
        let batch = batches.entry(header.number).or_insert_with(|| Whole { head, copies: Vec::new() });
        // One slot for each area; a second one is an image of it in some payload.
        if batch.head.header.is_copy_of(&header) && batch.copies.iter().all(|&(other, _)| other != index) {
            batch.copies.push((index, start));
        }
    }
    batches
}

/// Acknowledged batches from `oldest_live` on that were not found. Numbers of one opening follow one another.
fn missing(scans: &[Scan], batches: &BTreeMap<u64, Whole>, oldest_live: u64) -> u64 {
    let mut openings: BTreeMap<u64, u64> = BTreeMap::new();
    for seen in scans.iter().flat_map(|scan| &scan.seen) {
        let last = seen.header.acknowledged;
        if last >= oldest_live && last > 0 {
            let known = openings.entry(State::first_of_opening(last)).or_insert(0);
            *known = last.max(*known);
        }
    }
    let lacking = openings.into_iter().map(|(first, last)| {
        let first = first.max(oldest_live);
        (last - first + 1).saturating_sub(batches.range(first..=last).count() as u64)
    });
    lacking.sum()
}

impl Inner {
    /// Puts the state together from what was found.
    fn restore(&self, scans: &mut [Scan], batches: BTreeMap<u64, Whole>, oldest_live: u64) -> Replay {
        let mut state = self.state.borrow_mut();
        let mut replay =
            Replay { missing_batches: missing(scans, &batches, oldest_live), ..Replay::default() };
        let all_seen = || scans.iter().flat_map(|scan| &scan.seen).map(|seen| &seen.header);
        let settled = all_seen().map(|header| header.settled).max().unwrap_or(0);
        replay.settled = settled;
        (state.settled, state.settled_told) = (settled, settled);
        let next = all_seen().map(|header| header.first_sequence + u64::from(header.records)).max();
        state.next_sequence = next.unwrap_or(1).max(1);

        let mut ids = Vec::new();
        for (index, scan) in scans.iter().enumerate() {
            let id = state.next_ring_id();
            ids.push(id);
            let mut ring = Ring::new(id, scan.area.clone());
            let copies = batches.iter().flat_map(|(&number, batch)| {
                let own = batch.copies.iter().filter(move |&&(of, _)| of == index);
                own.map(move |&(_, start)| (number, start, batch.head.header.pages()))
            });
            ring.restore(copies.collect(), scan.head);
            state.rings.push(ring);
        }
        let mut released: Vec<(u64, u64)> = (batches.values())
            .flat_map(|batch| &batch.head.notes)
            .map(|note| (note.first, note.first + u64::from(note.count)))
            .collect();
        released.sort_unstable();

        let mut next_sequence = 0;
        for (number, whole) in batches {
            let header = whole.head.header;
            if header.first_sequence < next_sequence {
                continue; // forged: numbers and sequences rise together
            }
            next_sequence = header.first_sequence + u64::from(header.records);
            let mut batch =
                Batch::new(number, header.first_sequence, u64::from(header.records), header.pages(), 0);
            (batch.durable, batch.acknowledged) = (true, true);
            for (index, start) in whole.copies {
                let ring = ids[index];
                if state.ring(ring).is_some_and(|ring| ring.holds(number, start)) {
                    batch.copies.push(Copy { ring, start });
                }
            }
            for (index, (record, payload)) in whole.head.records.into_iter().enumerate() {
                // Runs do not overlap: a record is released once. A forged one that does is at worst not seen.
                let at = released.partition_point(|&(first, _)| first <= record.sequence);
                if at > 0 && record.sequence < released[at - 1].1 {
                    batch.release(index as u64);
                } else {
                    replay.records.push(Found { record, payload });
                }
            }
            state.live_records += batch.live();
            state.batches.push_back(batch);
        }
        replay.records.sort_by_key(|found| found.record.sequence);
        state.forget_dead();
        state.durable_oldest = oldest_live;
        replay
    }

    /// Makes the new opening durable on all areas, before anything is written in it.
    async fn begin_opening(&self, scans: &[Scan]) -> Result<(), ArrayError> {
        let ids: Vec<u64> = self.state.borrow().rings.iter().map(|ring| ring.id).collect();
        let writes = scans.iter().zip(ids).map(|(scan, id)| async move {
            let area = &scan.area;
            if let Some(error) = &scan.failed {
                return self.area_failed(id, area.drive, error).await;
            }
            let fresh = self.opening << OPENING_SHIFT;
            let from_batch = scan.header.map_or(fresh, |(header, _)| header.from_batch);
            let oldest_live = self.state.borrow().durable_oldest;
            let header = AreaHeader { epoch: self.epoch, opening: self.opening, from_batch, oldest_live };
            let page = header.encode(self.volume_id, area, &self.buffers);
            // Not over the header that counts; both pages where none does.
            let (at, segments) = match scan.header {
                Some((_, slot)) => ((1 - slot as u64) * PAGE_BYTES, Segments::from_iter([page])),
                None => (0, Segments::from_iter([page.clone(), page])),
            };
            for attempt in 0..2 {
                match write_fua(&area.member, area.base_bytes + at, &segments).await {
                    Ok(()) => break,
                    Err(_) if attempt == 0 => {}
                    Err(error) => return self.area_failed(id, area.drive, &error).await,
                }
            }
            if let Some(ring) = self.state.borrow_mut().ring(id) {
                ring.header = (at / PAGE_BYTES, from_batch);
            }
            Ok(())
        });
        join_all(writes).await.into_iter().collect()
    }

    fn places_of(&self, sequence: u64) -> Vec<(Area, u64)> {
        let mut state = self.state.borrow_mut();
        let Some((batch, _)) = state.batch_of(sequence) else { return Vec::new() };
        let copies = batch.copies.clone();
        copies.iter().filter_map(|copy| Some((state.ring(copy.ring)?.area.clone(), copy.start))).collect()
    }

    /// What has to be read for one more copy of a batch: its places and its pages. `None`: it has enough, or is gone.
    fn next_restore(&self, number: u64) -> Option<u64> {
        let state = self.state.borrow();
        let batch = state.batches.iter().find(|batch| batch.number == number)?;
        (state.copies_of(batch) < state.target()).then_some(batch.pages)
    }

    /// One more copy of a batch. `false`: there is no room, or no copy can be read.
    async fn restore_copy(&self, number: u64, pages: u64) -> Result<bool, ArrayError> {
        let Some((whole, copy)) = self.read_and_place(number, pages).await else { return Ok(false) };
        let written = self.write_copy(copy.ring, copy.start, &Segments::from_iter([whole])).await?;
        let mut state = self.state.borrow_mut();
        if let Some(ring) = state.ring(copy.ring) {
            ring.in_flight -= 1;
        }
        // Everything in it may have been released meanwhile.
        if written && state.batches.iter().any(|batch| batch.number == number) {
            state.batch(number).copies.push(copy);
        }
        drop(state);
        self.changed();
        Ok(true)
    }

    async fn read_and_place(&self, number: u64, pages: u64) -> Option<(Buffer, Copy)> {
        let (sources, header): (Vec<(Area, u64)>, _) = {
            let mut state = self.state.borrow_mut();
            let copies = state.batch(number).copies.clone();
            let places = copies
                .iter()
                .filter_map(|copy| Some((state.ring(copy.ring)?.area.clone(), copy.start)))
                .collect();
            (places, (self.volume_id, self.epoch))
        };
        for (area, start) in sources {
            let at = (HEADER_PAGES + start) * PAGE_BYTES;
            let Ok(whole) = read(&area, &self.buffers, at, pages * PAGE_BYTES).await else { continue };
            let first = whole.slice(0..PAGE_BYTES as usize);
            let Some(read_header) =
                first.with(|bytes| batch::decode_header(bytes, header.0, header.1)).flatten()
            else {
                continue;
            };
            let head = whole.slice(0..read_header.head_bytes.min(pages * PAGE_BYTES) as usize);
            let decoded = head.with(|bytes| batch::decode(bytes, header.0, header.1)).flatten();
            let sound = decoded.is_some_and(|decoded| {
                decoded.header.number == number
                    && decoded.header.pages() == pages
                    && decoded.records.iter().all(|(_, payload)| payload_is_sound(&whole, payload))
            });
            if !sound {
                continue;
            }
            let mut state = self.state.borrow_mut();
            let copies = state.batches.iter().find(|batch| batch.number == number)?.copies.clone();
            let (longest, note_pages) = (state.longest_batch(), state.note_pages());
            let index = (0..state.rings.len()).find(|&index| {
                let ring = &state.rings[index];
                !ring.failing
                    && copies.iter().all(|copy| copy.ring != ring.id)
                    && state.spare(index, longest, note_pages) >= pages
            })?;
            let ring = &mut state.rings[index];
            let start = ring.allocate(number, pages)?;
            ring.in_flight += 1;
            let copy = Copy { ring: ring.id, start };
            let written_at = state.next_number;
            head.with_mut(|bytes| batch::rewrite(bytes, written_at));
            return Some((whole, copy));
        }
        None
    }
}
