//! Scans a journal's areas: finds the heads of batches, and which batches are intact.
//!
//! Each area is read once for the heads of batches, page by page through a window, so that memory
//! does not grow with the area. The payload of batches that may be live is read and verified too,
//! and dropped again. Faults expected: garbage, torn batches, pages that cannot be read (tried
//! twice). Of a batch whose head is whole the records are known even if their payload is not.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use stripewise_drive::{Buffer, BufferPool, Cause, DriveError, IoRequest};

use super::OPENING_SHIFT;
use super::area::{Area, AreaHeader, HEADER_PAGES};
use super::batch::{self, BatchHeader, Head, PAGE_BYTES, Payload};
use super::state::State;
use crate::member::Class;

/// Pages per read while scanning for heads.
const WINDOW_PAGES: u64 = 256;

/// A batch head found in an area.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub start: u64,
    pub header: BatchHeader,
}

/// Scan result of an area.
pub(super) struct Scan {
    pub area: Area,
    /// Newest header and its slot; `None` if the area holds nothing of this journal.
    pub header: Option<(AreaHeader, usize)>,
    pub seen: Vec<Seen>,
    /// Error if the area could not be read at all.
    pub failed: Option<DriveError>,
    /// End of the newest batch.
    pub head: u64,
    /// Pages of the ring that could not be read.
    pub unreadable: BTreeSet<u64>,
}

impl Scan {
    /// True if a page of this batch could not be read.
    fn has_unreadable(&self, seen: &Seen) -> bool {
        let end = seen.start + seen.header.pages();
        self.unreadable.range(seen.start..end).next().is_some()
    }

    /// True if the batch after the newest one may be on a page that could not be read: at the end
    /// of the newest, or at the ring's start.
    pub(super) fn may_hide_a_batch(&self) -> bool {
        let is_known = |page| {
            let holds = |seen: &Seen| (seen.start..seen.start + seen.header.pages()).contains(&page);
            self.seen.iter().any(holds)
        };
        [self.head, 0].iter().any(|page| self.unreadable.contains(page) && !is_known(*page))
    }
}

/// A batch of which every copy that is left has a whole head.
pub(super) struct Whole {
    pub head: Head,
    /// Index of the scan, and first page in its ring.
    pub copies: Vec<(usize, u64)>,
    /// Indices of the records whose payload is on no copy.
    pub lost: BTreeSet<usize>,
}

pub(super) async fn read(
    area: &Area,
    buffers: &BufferPool,
    offset_bytes: u64,
    bytes: u64,
) -> Result<Buffer, DriveError> {
    let buffer = buffers.allocate(bytes as usize);
    let at = area.base_bytes + offset_bytes;
    let request = IoRequest::read(at, buffer.clone()).because(Cause::Journal);
    area.member.submit(Class::Foreground, request).await?;
    Ok(buffer)
}

/// Reads a ring through a window that keeps the last pages read.
struct Window<'a> {
    area: &'a Area,
    buffers: &'a BufferPool,
    ring_pages: u64,
    first: u64,
    pages: u64,
    buffer: Buffer,
    /// Pages that could not be read.
    unreadable: BTreeSet<u64>,
}

impl<'a> Window<'a> {
    fn new(area: &'a Area, buffers: &'a BufferPool) -> Self {
        let ring_pages = area.bytes / PAGE_BYTES - HEADER_PAGES;
        let (buffer, unreadable) = (Buffer::phantom(0), BTreeSet::new());
        Self { area, buffers, ring_pages, first: 0, pages: 0, buffer, unreadable }
    }

    /// Returns pages of the ring, with zeros for unreadable ones; the range must lie within the
    /// ring.
    async fn pages(&mut self, start: u64, count: u64) -> Buffer {
        if start < self.first || start + count > self.first + self.pages {
            let pages = count.max(WINDOW_PAGES).min(self.ring_pages - start);
            self.buffer = self.load(start, pages).await;
            (self.first, self.pages) = (start, pages);
        }
        let from = ((start - self.first) * PAGE_BYTES) as usize;
        self.buffer.slice(from..from + (count * PAGE_BYTES) as usize)
    }

    async fn load(&mut self, start: u64, pages: u64) -> Buffer {
        let at = (HEADER_PAGES + start) * PAGE_BYTES;
        if let Ok(buffer) = read(self.area, self.buffers, at, pages * PAGE_BYTES).await {
            return buffer;
        }
        let whole = self.buffers.allocate_zeroed((pages * PAGE_BYTES) as usize);
        for page in 0..pages {
            if self.area.member.is_failed() {
                self.unreadable.extend(start + page..start + pages);
                break;
            }
            match read_twice(self.area, self.buffers, at + page * PAGE_BYTES).await {
                Ok(one) => {
                    let from = (page * PAGE_BYTES) as usize;
                    whole.slice(from..from + PAGE_BYTES as usize).copy_from(&one);
                }
                Err(_) => drop(self.unreadable.insert(start + page)),
            }
        }
        whole
    }
}

/// Reads a page, once more if that fails.
async fn read_twice(area: &Area, buffers: &BufferPool, offset_bytes: u64) -> Result<Buffer, DriveError> {
    match read(area, buffers, offset_bytes, PAGE_BYTES).await {
        Ok(page) => Ok(page),
        Err(_) => read(area, buffers, offset_bytes, PAGE_BYTES).await,
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
        match read_twice(area, buffers, at).await {
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

/// Finds the batch heads in an area (at most one per page, some hundred bytes each), and the pages
/// that cannot be read.
async fn scan(
    area: &Area,
    header: AreaHeader,
    volume_id: u128,
    buffers: &BufferPool,
) -> (Vec<Seen>, BTreeSet<u64>) {
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
    (seen, window.unreadable)
}

/// Reads a whole batch and verifies its checksums. Returns its head, and the indices of the records
/// whose payload is damaged; `None` if the head is.
async fn verify(area: &Area, seen: &Seen, buffers: &BufferPool) -> Option<(Head, BTreeSet<usize>)> {
    let mut window = Window::new(area, buffers);
    let whole = window.pages(seen.start, seen.header.pages()).await;
    let head = whole.slice(0..seen.header.head_bytes as usize);
    let decoded =
        head.with(|bytes| batch::decode(bytes, seen.header.volume_id, seen.header.epoch)).flatten()?;
    // Padding to whole pages is not covered by a checksum; it carries no data.
    let is_damaged =
        |(index, (_, payload)): (usize, &(_, Payload))| (!payload_is_sound(&whole, payload)).then_some(index);
    let damaged = decoded.records.iter().enumerate().filter_map(is_damaged).collect();
    (decoded.header == seen.header).then_some((decoded, damaged))
}

/// True if a record's payload in a batch agrees with its checksum.
pub(super) fn payload_is_sound(whole: &Buffer, payload: &Payload) -> bool {
    let bytes = whole.slice(payload.at as usize..(payload.at + payload.bytes) as usize);
    payload.phantom || batch::checksum([&bytes]).0 == payload.crc
}

/// Scans all areas for the newest journal among them.
pub(super) async fn read_all(areas: Vec<Area>, volume_id: u128, buffers: &BufferPool) -> Vec<Scan> {
    let headers = join_all(areas.iter().map(|area| read_header(area, volume_id, buffers))).await;
    let epoch = headers.iter().flatten().flatten().map(|(header, _)| header.epoch).max();
    let scans = areas.iter().zip(headers).map(|(area, header)| async move {
        let mut scan = Scan {
            area: area.clone(),
            header: None,
            seen: Vec::new(),
            failed: None,
            head: 0,
            unreadable: BTreeSet::new(),
        };
        match header {
            Err(error) => scan.failed = Some(error),
            Ok(header) => scan.header = header.filter(|(header, _)| Some(header.epoch) == epoch),
        }
        if let Some((header, _)) = scan.header {
            (scan.seen, scan.unreadable) = self::scan(area, header, volume_id, buffers).await;
            scan.head = head_of(&scan.seen);
        }
        scan
    });
    join_all(scans).await
}

/// End of the copy that was written last. Copies restored later are contiguous with one
/// `written_at`, followed by the batch of that number.
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

/// All batches from `oldest_live` on with an intact copy, and those without one that were
/// acknowledged or cannot be read: their damaged records are lost. (What is torn and was never
/// acknowledged was cut off in flight.)
pub(super) async fn verify_all(
    scans: &[Scan],
    oldest_live: u64,
    buffers: &BufferPool,
) -> BTreeMap<u64, Whole> {
    let acknowledged = acknowledged(scans, oldest_live);
    let was_acknowledged =
        |number: u64| acknowledged.get(&State::first_of_opening(number)).is_some_and(|&last| number <= last);
    let checks = scans.iter().enumerate().map(|(index, scan)| async move {
        let mut whole = Vec::new();
        for seen in scan.seen.iter().filter(|seen| seen.header.number >= oldest_live) {
            if let Some((head, damaged)) = verify(&scan.area, seen, buffers).await {
                whole.push((head, damaged, index, seen));
            }
        }
        whole
    });
    let found: Vec<_> = join_all(checks).await.into_iter().flatten().collect();
    let (intact, damaged): (Vec<_>, Vec<_>) = found.into_iter().partition(|(_, lost, ..)| lost.is_empty());
    let mut batches: BTreeMap<u64, Whole> = BTreeMap::new();
    for (head, _, index, seen) in intact {
        add_copy(&mut batches, head, BTreeSet::new(), (index, seen.start));
    }
    let numbers: BTreeSet<u64> = batches.keys().copied().collect();
    for (head, lost, index, seen) in damaged {
        let number = head.header.number;
        let counts = was_acknowledged(number) || scans[index].has_unreadable(seen);
        if counts && !numbers.contains(&number) {
            add_copy(&mut batches, head, lost, (index, seen.start));
        }
    }
    batches
}

/// Adds a copy of a batch; what is damaged in all copies is lost.
fn add_copy(
    batches: &mut BTreeMap<u64, Whole>,
    head: Head,
    damaged: BTreeSet<usize>,
    (index, start): (usize, u64),
) {
    let header = head.header;
    let batch = batches.entry(header.number).or_insert_with(|| Whole {
        head,
        copies: Vec::new(),
        lost: damaged.clone(),
    });
    // An area holds one copy of a batch; a second one is an image of it in some payload.
    if batch.head.header.is_copy_of(&header) && batch.copies.iter().all(|&(other, _)| other != index) {
        batch.copies.push((index, start));
        batch.lost.retain(|record| damaged.contains(record));
    }
}

/// For each opening, by its first number, the highest batch from `oldest_live` on that any head
/// records as acknowledged.
fn acknowledged(scans: &[Scan], oldest_live: u64) -> BTreeMap<u64, u64> {
    let mut openings: BTreeMap<u64, u64> = BTreeMap::new();
    for seen in scans.iter().flat_map(|scan| &scan.seen) {
        let last = seen.header.acknowledged;
        if last >= oldest_live && last > 0 {
            let known = openings.entry(State::first_of_opening(last)).or_insert(0);
            *known = last.max(*known);
        }
    }
    openings
}

/// Number of acknowledged batches from `oldest_live` on that were not found. Numbers within an
/// opening are consecutive.
pub(super) fn missing(scans: &[Scan], batches: &BTreeMap<u64, Whole>, oldest_live: u64) -> u64 {
    let lacking = acknowledged(scans, oldest_live).into_iter().map(|(first, last)| {
        let first = first.max(oldest_live);
        (last - first + 1).saturating_sub(batches.range(first..=last).count() as u64)
    });
    lacking.sum()
}

/// Batches that were found although an earlier one of the same opening was lost in flight: they
/// were never acknowledged. Their release notes must not count, as the lost batch may have had
/// notes of older records: these would be found without the later ones.
pub(super) fn behind_a_gap(
    scans: &[Scan],
    batches: &BTreeMap<u64, Whole>,
    oldest_live: u64,
) -> BTreeSet<u64> {
    let acknowledged = acknowledged(scans, oldest_live);
    let mut behind = BTreeSet::new();
    let mut next = oldest_live;
    for &number in batches.keys() {
        let first = State::first_of_opening(number);
        if State::first_of_opening(next) != first {
            next = first;
        }
        let surely_there = acknowledged.get(&first).map_or(0, |last| last + 1);
        if number <= next.max(surely_there) {
            next = number + 1;
        } else {
            behind.insert(number);
        }
    }
    behind
}
