//! Opens a journal after a crash and finds the unreleased records.
//!
//! The areas are scanned in `scan.rs`. Before `open` returns, each record found is on as many areas
//! as an acknowledged append would be (`copies.rs`), so that replay can be interrupted and
//! repeated. Payload is not kept in memory: [`Journal::load`] reads it when it is needed.
//!
//! The same holds for state that only one area recorded: the opening, the oldest live batch and the
//! release notes of live batches are on all areas (or on as many as a batch is written to) before
//! `open` returns, so the drive with the only copy may be lost at the next cut. Headers of areas
//! are not copies of each other: each is written to its area's outdated slot, and the oldest live
//! batch in it is in the first batch of the opening, too.
//!
//! Faults expected: all. Garbage and torn batches are skipped, a drive that fails altogether is
//! excluded through the host. A record whose payload is unreadable on all areas is found as lost.

use std::collections::BTreeMap;
use std::rc::Rc;

use futures_util::future::join_all;
use stripewise_drive::{BufferPool, Context, Segments};

use super::append::write_fua;
use super::area::{Area, AreaHeader, HEADER_PAGES, MIN_AREA_BYTES, Ring};
use super::batch::{PAGE_BYTES, Payload};
use super::scan::{Scan, Whole, behind_a_gap, missing, payload_is_sound, read, read_all, verify_all};
use super::state::{Batch, Copy};
use super::{Inner, Journal, JournalHost, Kind, OPENING_SHIFT, Record};
use crate::error::ArrayError;

/// An unreleased record. Its parts hold phantoms; [`Journal::load`] reads the bytes.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub record: Record,
    payload: Payload,
    /// Its bytes are on no area any more.
    pub is_lost: bool,
}

impl Found {
    /// The rest of a lost record of a write in place: its announcement, with its checksums.
    pub(crate) fn as_intent(&self) -> Self {
        let record =
            Record { kind: Kind::Intent, covers: 0, parts: Default::default(), ..self.record.clone() };
        Self { record, payload: Payload { bytes: 0, ..self.payload }, is_lost: false }
    }
}

/// Contents of a journal when it was opened.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    /// Unreleased records in the order of sequences.
    pub records: Vec<Found>,
    /// Acknowledged batches that may hold unreleased records and are on none of the areas: more
    /// areas were lost than the copies could cover.
    pub missing_batches: u64,
    /// Number of areas in which the newest batch may be on a page that could not be read.
    pub hiding_areas: usize,
    /// Drives whose area held nothing of this journal and was initialised.
    pub blank: Vec<u32>,
    /// True if no area held anything of this journal: its contents are lost.
    pub was_empty: bool,
}

impl Journal {
    /// Opens the journal in these areas, which must be those of current drives: every area that
    /// took part in the last acknowledged batch, less those that were lost. If none of them holds
    /// anything of it, the journal starts empty with `fresh_epoch`, never used before with this
    /// `volume_id`; without one this is an error.
    pub(crate) async fn open(
        context: &Context,
        buffers: &BufferPool,
        volume_id: u128,
        fresh_epoch: Option<u64>,
        areas: Vec<Area>,
        copies: usize,
        host: Rc<dyn JournalHost>,
    ) -> Result<(Self, Replay), ArrayError> {
        if buffers.is_phantom() {
            // A model without bytes stores nothing: the journal opens as it would after a clean
            // close.
            let journal = Self::create(context, buffers, volume_id, 1, areas, copies, host).await?;
            return Ok((journal, Replay::default()));
        }
        if let Some(small) = areas.iter().find(|area| area.bytes < MIN_AREA_BYTES) {
            return Err(super::too_small(small));
        }
        let mut scans = read_all(areas, volume_id, buffers).await;
        let newest = scans.iter().filter_map(|scan| scan.header).map(|(header, _)| header).max();
        let was_empty = newest.is_none();
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
        replay.was_empty = was_empty;
        replay.hiding_areas = scans.iter().filter(|scan| scan.may_hide_a_batch()).count();
        replay.blank = (scans.iter())
            .filter(|scan| scan.failed.is_none() && scan.header.is_none())
            .map(|scan| scan.area.drive)
            .collect();
        journal.0.begin_opening(&scans).await?;
        journal.0.mark_everywhere().await?;
        journal.restore_copies().await?;
        Ok((journal, replay))
    }

    /// Reads a record's payload.
    pub(crate) async fn load(&self, found: &Found) -> Result<Record, ArrayError> {
        let mut record = found.record.clone();
        let Payload { at, bytes, .. } = found.payload;
        if bytes == 0 {
            return Ok(record);
        }
        let places = self.0.places_of(record.sequence);
        for (area, start) in places {
            // Read whole pages, which suits the block size of any drive.
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
            "record {} (stripe {}) is unreadable on all of its drives",
            record.sequence, record.stripe
        )))
    }
}

impl Inner {
    /// Builds the state from the scans.
    fn restore(&self, scans: &mut [Scan], batches: BTreeMap<u64, Whole>, oldest_live: u64) -> Replay {
        let mut state = self.state.borrow_mut();
        let mut replay =
            Replay { missing_batches: missing(scans, &batches, oldest_live), ..Replay::default() };
        let all_seen = || scans.iter().flat_map(|scan| &scan.seen).map(|seen| &seen.header);
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
        let behind = behind_a_gap(scans, &batches, oldest_live);
        let counts = |(number, _): &(&u64, &Whole)| !behind.contains(*number);
        let mut released: Vec<(u64, u64)> = (batches.iter().filter(counts))
            .flat_map(|(_, batch)| &batch.head.notes)
            .map(|note| (note.first, note.first + u64::from(note.count)))
            .collect();
        released.sort_unstable();

        let mut next_sequence = 0;
        for (number, whole) in batches {
            let header = whole.head.header;
            if header.first_sequence < next_sequence {
                continue; // corrupt: numbers and sequences rise together
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
                // Runs do not overlap, since a record is released once. In corrupt notes an
                // overlapping run is at worst ignored.
                let at = released.partition_point(|&(first, _)| first <= record.sequence);
                if at > 0 && record.sequence < released[at - 1].1 {
                    batch.release(index as u64);
                } else {
                    let is_lost = whole.lost.contains(&index);
                    if record.kind == Kind::Data && !is_lost {
                        batch.set_to_destage(index as u64);
                    }
                    replay.records.push(Found { record, payload, is_lost });
                }
            }
            state.live_records += batch.live();
            state.hold(batch);
        }
        replay.records.sort_by_key(|found| found.record.sequence);
        state.forget_dead();
        state.durable_oldest = oldest_live;
        replay
    }

    /// Makes the new opening durable on all areas, before its first batch is written.
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
            // Keep the current header; without one write both pages.
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
}
