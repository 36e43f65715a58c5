//! The journal's state in memory: live batches, releases, and how much of that is durable. No I/O
//! here.

use std::collections::VecDeque;
use std::rc::Rc;

use smallvec::SmallVec;

use super::area::Ring;
use super::batch::{Note, PAGE_BYTES};
use super::gathering::Gathering;
use super::waiting::{Pending, Ticket, Waiter};
use super::{Held, JournalFill, OPENING_SHIFT};
use crate::error::ArrayError;
use crate::tuning::Tuning;

/// Location of one copy of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copy {
    pub ring: u64,
    pub start: u64,
}

/// An append waiting for its batch: ticket, first sequence, number of records.
pub(super) type Waiting = (Rc<Ticket>, u64, u64);

/// A batch in use: in flight, or with an unreleased record in it or in an older one.
pub(super) struct Batch {
    pub number: u64,
    pub first_sequence: u64,
    pub records: u64,
    pub pages: u64,
    /// Pages of all earlier batches, counting one copy of each.
    pages_before: u64,
    /// Oldest live batch recorded in its head.
    pub oldest_live: u64,
    /// Places written, or being written.
    pub copies: SmallVec<[Copy; 3]>,
    pub durable: bool,
    pub acknowledged: bool,
    /// True if an area with a copy of it was lost.
    pub was_hit: bool,
    /// One bit per record.
    released: SmallVec<[u64; 2]>,
    live: u64,
    /// One bit per record that has to be destaged.
    to_destage: SmallVec<[u64; 2]>,
    pub waiting: Vec<Waiting>,
    /// Number of releases that are durable once this batch is.
    pub says_released: u64,
}

impl Batch {
    pub(super) fn new(number: u64, first_sequence: u64, records: u64, pages: u64, oldest_live: u64) -> Self {
        Self {
            number,
            first_sequence,
            records,
            pages,
            pages_before: 0,
            oldest_live,
            copies: SmallVec::new(),
            durable: false,
            acknowledged: false,
            was_hit: false,
            released: SmallVec::from_elem(0, records.div_ceil(64) as usize),
            live: records,
            to_destage: SmallVec::from_elem(0, records.div_ceil(64) as usize),
            waiting: Vec::new(),
            says_released: 0,
        }
    }

    pub(super) fn is_released(&self, index: u64) -> bool {
        self.released[(index / 64) as usize] >> (index % 64) & 1 == 1
    }

    /// Marks a record as not in place: destaging it will take space.
    pub(super) fn set_to_destage(&mut self, index: u64) {
        self.to_destage[(index / 64) as usize] |= 1 << (index % 64);
    }

    /// Marks a record as in place.
    pub(super) fn note_placed(&mut self, index: u64) {
        self.to_destage[(index / 64) as usize] &= !(1 << (index % 64));
    }

    /// Number of records that have to be destaged.
    pub(super) fn to_destage(&self) -> u64 {
        self.to_destage.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Releases one record; `false` if it was released already.
    pub(super) fn release(&mut self, index: u64) -> bool {
        self.note_placed(index);
        let word = &mut self.released[(index / 64) as usize];
        let fresh = *word >> (index % 64) & 1 == 0;
        *word |= 1 << (index % 64);
        self.live -= u64::from(fresh);
        fresh
    }

    pub(super) fn live(&self) -> u64 {
        self.live
    }
}

pub(super) struct State {
    pub rings: Vec<Ring>,
    /// Areas being given up: still readable, and the target of writes in flight, but their copies
    /// do not count.
    pub leaving: Vec<Ring>,
    next_ring: u64,
    pub copies: usize,
    pub destage_percent: u64,
    /// Size at which a batch of several appends ends.
    pub batch_bytes: u64,
    /// Maximum runs of release notes in one batch; more are written first, in batches of their own.
    pub batch_notes: usize,
    pub next_number: u64,
    pub next_sequence: u64,
    /// Live batches, ordered by number.
    pub batches: VecDeque<Batch>,
    /// Pages of all batches ever held, counting one copy of each.
    pages_ever: u64,
    /// Numbers of the unacknowledged batches, in order.
    pub unacknowledged: VecDeque<u64>,
    /// Appends without a batch.
    pub queue: VecDeque<Pending>,
    /// Decides whether they wait for more.
    pub gathering: Gathering,
    /// Records released since the last batch.
    pub notes: Vec<u64>,
    pub live_records: u64,
    /// Number of releases so far.
    pub released: u64,
    /// Number of releases that are durable.
    pub released_durably: u64,
    /// Highest durable `oldest live`.
    pub durable_oldest: u64,
    /// Last batch acknowledged in this opening; 0 if there is none.
    pub last_acknowledged: u64,
    pub clients_waiting: VecDeque<Rc<Waiter>>,
    pub in_place_waiting: VecDeque<Rc<Waiter>>,
    pub destage_waiting: VecDeque<Rc<Waiter>>,
    pub pressure_level: usize,
    /// True while the areas' headers are being written.
    pub is_marking_headers: bool,
    /// True if an area was lost during that, so that the headers have to be written again.
    pub is_mark_due_again: bool,
    /// True once a batch with a record to destage was held; until then no search is needed.
    pub had_to_destage: bool,
    pub broken: Option<ArrayError>,
}

impl State {
    pub(super) fn new(copies: usize, next_number: u64) -> Self {
        assert!(copies > 0, "a journal has at least one copy");
        Self {
            rings: Vec::new(),
            leaving: Vec::new(),
            next_ring: 0,
            copies,
            destage_percent: 125,
            batch_bytes: Tuning::default().journal_batch_bytes,
            batch_notes: Tuning::default().journal_batch_notes,
            next_number,
            next_sequence: 1,
            batches: VecDeque::new(),
            pages_ever: 0,
            unacknowledged: VecDeque::new(),
            queue: VecDeque::new(),
            gathering: Gathering::default(),
            notes: Vec::new(),
            live_records: 0,
            released: 0,
            released_durably: 0,
            durable_oldest: next_number,
            last_acknowledged: 0,
            clients_waiting: VecDeque::new(),
            in_place_waiting: VecDeque::new(),
            destage_waiting: VecDeque::new(),
            pressure_level: 0,
            is_marking_headers: false,
            is_mark_due_again: false,
            had_to_destage: false,
            broken: None,
        }
    }

    pub(super) fn next_ring_id(&mut self) -> u64 {
        self.next_ring += 1;
        self.next_ring
    }

    /// Number of areas that a batch is written to.
    pub(super) fn target(&self) -> usize {
        self.copies.min(self.rings.len())
    }

    pub(super) fn ring(&mut self, id: u64) -> Option<&mut Ring> {
        self.rings.iter_mut().chain(&mut self.leaving).find(|ring| ring.id == id)
    }

    pub(super) fn batch(&mut self, number: u64) -> &mut Batch {
        let index = self.batches.partition_point(|batch| batch.number < number);
        let batch = &mut self.batches[index];
        assert_eq!(batch.number, number, "a batch in use");
        batch
    }

    /// The live batch of a record, and the record's index in it.
    pub(super) fn batch_of(&mut self, sequence: u64) -> Option<(&mut Batch, u64)> {
        // Batches without records share their first sequence with the next one.
        let index = self.batches.partition_point(|batch| batch.first_sequence + batch.records <= sequence);
        let batch = self.batches.get_mut(index)?;
        let place = sequence.checked_sub(batch.first_sequence)?;
        (place < batch.records).then_some((batch, place))
    }

    pub(super) fn release(&mut self, sequence: u64) {
        let (batch, index) = self.batch_of(sequence).expect("released records were appended");
        assert!(batch.acknowledged, "a record is released after its append ended");
        assert!(batch.release(index), "a record is released once");
        self.live_records -= 1;
        self.notes.push(sequence);
        self.released += 1;
        self.forget_dead();
    }

    /// See [`super::Journal::note_placed`].
    pub(super) fn note_placed(&mut self, sequence: u64) {
        if let Some((batch, index)) = self.batch_of(sequence) {
            batch.note_placed(index);
        }
    }

    /// Adds a batch.
    pub(super) fn hold(&mut self, mut batch: Batch) {
        batch.pages_before = self.pages_ever;
        self.pages_ever += batch.pages;
        self.had_to_destage |= batch.to_destage() > 0;
        self.batches.push_back(batch);
    }

    /// Pages from the oldest live batch to that of a record, or to the end.
    fn pages_before(&mut self, sequence: Option<u64>) -> u64 {
        let Some(first) = self.batches.front().map(|batch| batch.pages_before) else { return 0 };
        let end = sequence.and_then(|sequence| self.batch_of(sequence)).map(|(batch, _)| batch.pages_before);
        end.unwrap_or(self.pages_ever) - first
    }

    /// See [`super::Journal::held`].
    pub(super) fn held(&mut self, sequence: Option<u64>) -> Held {
        let target = self.target() as u64;
        Held {
            ring_bytes: self.rings.iter().map(|ring| ring.pages).sum::<u64>() * PAGE_BYTES,
            bytes: self.pages_before(None) * target * PAGE_BYTES,
            bytes_before: self.pages_before(sequence) * target * PAGE_BYTES,
            live_records: self.live_records,
        }
    }

    /// Drops the oldest batches while they have no live record.
    pub(super) fn forget_dead(&mut self) {
        while self.batches.front().is_some_and(|batch| batch.acknowledged && batch.live == 0) {
            self.batches.pop_front();
        }
    }

    /// Oldest live batch, as the next batch records it.
    pub(super) fn oldest_live(&self) -> u64 {
        self.batches.front().map_or(self.next_number, |batch| batch.number)
    }

    pub(super) fn oldest_record(&self) -> Option<u64> {
        let batch = self.batches.iter().find(|batch| batch.live > 0)?;
        let index = (0..batch.records).find(|&index| !batch.is_released(index))?;
        Some(batch.first_sequence + index)
    }

    /// Takes the notes for the next batch, at most `limit` runs. Records in batches below the
    /// oldest live one need no note.
    pub(super) fn take_notes(&mut self, limit: usize) -> Vec<Note> {
        if self.notes.is_empty() {
            return Vec::new();
        }
        let first = self.batches.front().map_or(u64::MAX, |batch| batch.first_sequence);
        self.notes.retain(|&sequence| sequence >= first);
        self.notes.sort_unstable();
        let mut runs: Vec<Note> = Vec::new();
        let mut taken = 0;
        for &sequence in &self.notes {
            let full = runs.len() == limit;
            match runs.last_mut() {
                Some(run) if run.first + u64::from(run.count) == sequence => run.count += 1,
                _ if full => break,
                _ => runs.push(Note { first: sequence, count: 1 }),
            }
            taken += 1;
        }
        self.notes.drain(..taken);
        runs
    }

    /// Upper bound of the runs of notes that the next batch has to carry.
    pub(super) fn pending_notes(&mut self) -> usize {
        if self.notes.len() > 64 {
            let first = self.batches.front().map_or(u64::MAX, |batch| batch.first_sequence);
            self.notes.retain(|&sequence| sequence >= first);
        }
        self.notes.len()
    }

    /// True if the journal has state that no batch records yet, durable or in flight.
    pub(super) fn has_news(&self) -> bool {
        !self.notes.is_empty() || self.oldest_live() > self.durable_oldest
    }

    /// Acknowledges durable batches, in order. Returns the appends to complete.
    pub(super) fn acknowledge(&mut self) -> Vec<Waiting> {
        let mut completed = Vec::new();
        while let Some(&number) = self.unacknowledged.front() {
            let batch = self.batch(number);
            if !batch.durable {
                break;
            }
            batch.acknowledged = true;
            completed.append(&mut batch.waiting);
            let (oldest_live, says_released) = (batch.oldest_live, batch.says_released);
            self.released_durably = self.released_durably.max(says_released);
            self.unacknowledged.pop_front();
            self.last_acknowledged = number;
            self.durable_oldest = self.durable_oldest.max(oldest_live);
        }
        self.note_durable_oldest(0);
        self.forget_dead();
        completed
    }

    /// Frees batches below this number, and below numbers recorded before.
    pub(super) fn note_durable_oldest(&mut self, oldest_live: u64) {
        self.durable_oldest = self.durable_oldest.max(oldest_live);
        let durable_oldest = self.durable_oldest;
        for ring in &mut self.rings {
            ring.reclaim(durable_oldest);
        }
    }

    /// Removes an area with all its copies.
    pub(super) fn remove_ring(&mut self, id: u64) {
        self.rings.retain(|ring| ring.id != id);
        self.leaving.retain(|ring| ring.id != id);
        if self.rings.is_empty() {
            self.rings = std::mem::take(&mut self.leaving);
        }
        for batch in &mut self.batches {
            let before = batch.copies.len();
            batch.copies.retain(|copy| copy.ring != id);
            batch.was_hit |= batch.copies.len() < before;
        }
    }

    /// Stops new batches to a drive's area; copies in it no longer count. `false` if fewer than
    /// `least` areas would be left.
    pub(super) fn begin_leaving(&mut self, drive: u32, least: usize) -> bool {
        let Some(index) = self.rings.iter().position(|ring| ring.area.drive == drive) else { return true };
        if self.rings.len() <= least {
            return false;
        }
        let ring = self.rings.remove(index);
        self.leaving.push(ring);
        true
    }

    /// Puts the drive's area back into use.
    pub(super) fn stay(&mut self, drive: u32) {
        let (back, leaving) =
            std::mem::take(&mut self.leaving).into_iter().partition(|ring| ring.area.drive == drive);
        self.leaving = leaving;
        self.rings.extend::<Vec<Ring>>(back);
        self.note_durable_oldest(0);
    }

    /// Number of remaining areas with a copy of the batch.
    pub(super) fn copies_of(&self, batch: &Batch) -> usize {
        let stays = |copy: &&Copy| self.rings.iter().any(|ring| ring.id == copy.ring);
        batch.copies.iter().filter(stays).count()
    }

    pub(super) fn fill(&self) -> JournalFill {
        let longest = self.longest_batch();
        let used: u64 = self.rings.iter().map(|ring| ring.used() + ring.reserved).sum();
        let capacity: u64 = self.rings.iter().map(|ring| self.client_limit(ring.pages, longest)).sum();
        JournalFill {
            used_bytes: used * PAGE_BYTES,
            capacity_bytes: capacity * PAGE_BYTES,
            live_records: self.live_records,
        }
    }

    pub(super) fn is_short(&self) -> bool {
        let lacks = |batch: &Batch| batch.acknowledged && self.copies_of(batch) < self.copies;
        self.rings.len() < self.copies || self.batches.iter().any(lacks)
    }

    pub(super) fn least_copies(&self) -> usize {
        // A closed journal keeps its copies.
        if self.broken.as_ref().is_some_and(|why| !matches!(why, ArrayError::Closed)) {
            return 0;
        }
        let hit = self.batches.iter().filter(|batch| batch.acknowledged && batch.was_hit);
        hit.map(|batch| batch.copies.len()).min().unwrap_or(usize::MAX).min(self.target())
    }

    /// Breaks the journal; the batch writer fails the waiting appends.
    pub(super) fn fail_all(&mut self, error: ArrayError) {
        self.broken.get_or_insert(error);
    }

    /// Takes all appends that can no longer succeed.
    pub(super) fn take_failed(&mut self) -> Vec<Waiting> {
        let queued = self.queue.drain(..).map(|pending| (pending.ticket, 0, 0));
        let mut failed: Vec<Waiting> = queued.collect();
        for batch in &mut self.batches {
            failed.append(&mut batch.waiting);
        }
        failed
    }

    /// Number of the first batch of this opening.
    pub(super) fn first_of_opening(number: u64) -> u64 {
        number >> OPENING_SHIFT << OPENING_SHIFT
    }
}
