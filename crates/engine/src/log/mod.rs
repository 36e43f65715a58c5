//! What an array tells its journal before it writes in place, and when the journal may forget it.
//!
//! A write of part of a stripe leaves data and parity disagreeing while it is under way; if power
//! is cut then and a drive is lost with it, blocks that no client was writing could not be
//! reconstructed. So all that is about to be written in place, data and parity, is in the journal
//! first (*redo*). A full stripe needs less, since all its data blocks are being written: that it
//! is under way (*intent*). A stripe never written needs nothing: its region reads as zeros until
//! it is complete.
//!
//! A record is live until its effects are durable in place: when a flush of the drives has ended
//! that began after them. With checksums it stays in the journal for longer, until a checkpoint has
//! made durable what it says of its blocks' sums. An intent does not say what is written, so replay
//! could not put a stripe together of intents and redo records: before a record of one kind is
//! logged, a stripe with a live one of the other kind is made durable.
//!
//! Memory: one entry per live record, bounded by the journal's size.

pub(crate) mod log_room;
pub(crate) mod log_slot;

use std::cell::{Cell, RefCell};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use stripewise_drive::Event;

use crate::error::ArrayError;
use crate::journal::{Journal, Kind, Record};
use crate::sync::rounds::Rounds;

/// A record that was logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Logged {
    pub sequence: u64,
    pub stripe: u64,
    pub kind: Kind,
}

/// Stripes of records, and what kind each is.
pub(crate) type Names = SmallVec<[(u64, Kind); 4]>;

pub(crate) struct WriteLog {
    pub journal: Journal,
    /// Live records per stripe: redo records, intents.
    live: RefCell<FxHashMap<u64, (u32, u32)>>,
    /// In place, though perhaps in the drives' caches only.
    applied: RefCell<Vec<Logged>>,
    /// What is in place durably, but in regions that the map on the drives does not know as written
    /// yet.
    early: RefCell<Vec<Logged>>,
    /// Records are kept until their sums are durable too.
    pub keeps_sums: bool,
    /// Durably in place, though their sums perhaps are not.
    before_checkpoint: RefCell<Vec<Logged>>,
    /// What was so when the checkpoint under way began.
    in_checkpoint: RefCell<Vec<Logged>>,
    /// Records that were carried out when the array was opened, and are kept until the blocks that
    /// are dead because of them are recorded as such.
    replayed: RefCell<Vec<u64>>,
    /// None of its areas held anything when it was opened.
    pub was_empty: Cell<bool>,
    /// Releases of records that a checkpoint has covered.
    pub releases: Rounds,
    /// Intents released, and how many of them durably: a crash would take the others for writes
    /// under way.
    over: Cell<u64>,
    marked: Cell<u64>,
    pub checkpointing: Cell<bool>,
    /// Writes that wait for room in the journal; only a flush can give it.
    pub waiting: Cell<u32>,
    /// The array takes no more writes: no write gets the room it waits for.
    pub room_denied: Event,
    pub making_room: Cell<bool>,
    pub marking_regions: Cell<bool>,
    /// Flushes of the drives.
    pub flushes: Rounds,
}

impl WriteLog {
    /// `keeps_sums`: records stay until [`Self::end_checkpoint`].
    pub(crate) fn new(journal: Journal, keeps_sums: bool) -> Self {
        Self {
            journal,
            live: RefCell::default(),
            applied: RefCell::default(),
            early: RefCell::default(),
            keeps_sums,
            before_checkpoint: RefCell::default(),
            in_checkpoint: RefCell::default(),
            replayed: RefCell::default(),
            was_empty: Cell::new(false),
            releases: Rounds::default(),
            over: Cell::new(0),
            marked: Cell::new(0),
            checkpointing: Cell::new(false),
            waiting: Cell::new(0),
            room_denied: Event::new(),
            making_room: Cell::new(false),
            marking_regions: Cell::new(false),
            flushes: Rounds::default(),
        }
    }

    /// Whether the journal may hold anything of these stripes.
    pub(crate) fn has_any(&self, stripes: std::ops::Range<u64>) -> bool {
        let is_one = |logged: &Logged| stripes.contains(&logged.stripe);
        self.before_checkpoint.borrow().iter().any(is_one)
            || self.in_checkpoint.borrow().iter().any(is_one)
            || stripes.into_iter().any(|stripe| self.live.borrow().contains_key(&stripe))
    }

    /// Data of the stripe was logged.
    pub(crate) fn note_data(&self, stripe: u64) {
        self.count(stripe, Kind::Data, 1);
    }

    /// What a crash would make unreachable: to be released when the map on the drives has their
    /// regions.
    pub(crate) fn note_early(&self, logged: Vec<Logged>) {
        self.early.borrow_mut().extend(logged);
    }

    /// Whether something is early.
    pub(crate) fn has_any_early(&self) -> bool {
        !self.early.borrow().is_empty()
    }

    /// Whether something of the stripe is early.
    pub(crate) fn has_early(&self, stripe: u64) -> bool {
        self.early.borrow().iter().any(|logged| logged.stripe == stripe)
    }

    /// Whether something of these stripes is early.
    pub(crate) fn has_early_in(&self, stripes: &std::ops::Range<u64>) -> bool {
        self.early.borrow().iter().any(|logged| stripes.contains(&logged.stripe))
    }

    /// What these stripes hold no longer matters.
    pub(crate) fn forget_early(&self, stripes: std::ops::Range<u64>) {
        let (gone, kept) = self.take_early().into_iter().partition(|logged| stripes.contains(&logged.stripe));
        self.note_early(kept);
        self.note_durable(gone);
    }

    /// Whether something of the stripe is not durable in place yet.
    pub(crate) fn has_live(&self, stripe: u64) -> bool {
        self.live.borrow().contains_key(&stripe)
    }

    /// Whether the journal has nothing live of the stripe but one intent.
    pub(crate) fn is_alone(&self, stripe: u64) -> bool {
        self.live.borrow().get(&stripe) == Some(&(0, 1))
    }

    /// Takes what was early out; what still is has to be put back.
    pub(crate) fn take_early(&self) -> Vec<Logged> {
        std::mem::take(&mut *self.early.borrow_mut())
    }

    /// Whether the stripe must be made durable before a record of this kind for it.
    pub(crate) fn must_flush_before(&self, stripe: u64, kind: Kind) -> bool {
        let live = self.live.borrow();
        live.get(&stripe)
            .is_some_and(|&(redo, intents)| if kind == Kind::Intent { redo > 0 } else { intents > 0 })
    }

    fn count(&self, stripe: u64, kind: Kind, change: i32) {
        let mut live = self.live.borrow_mut();
        let counts = live.entry(stripe).or_default();
        let count = if kind == Kind::Intent { &mut counts.1 } else { &mut counts.0 };
        *count = count.strict_add_signed(change);
        if *counts == (0, 0) {
            live.remove(&stripe);
        }
    }

    /// Whether records can be logged together.
    pub(crate) fn fits(&self, records: &[Record]) -> bool {
        self.journal.fits(Journal::bytes_of(records))
    }

    /// Records are about to be appended to the journal: they count as live from now on.
    pub(crate) fn begin_records(&self, records: &[Record]) -> Names {
        let names: Names = records.iter().map(|record| (record.stripe, record.kind)).collect();
        names.iter().for_each(|&(stripe, kind)| self.count(stripe, kind, 1));
        names
    }

    /// They were, under these sequences; or they were not, and count no more.
    pub(crate) fn end_records(
        &self,
        names: Names,
        appended: Result<SmallVec<[u64; 4]>, ArrayError>,
    ) -> Result<SmallVec<[Logged; 4]>, ArrayError> {
        match appended {
            Ok(sequences) => {
                let logged = names.into_iter().zip(sequences);
                Ok(logged.map(|((stripe, kind), sequence)| Logged { sequence, stripe, kind }).collect())
            }
            Err(error) => {
                names.into_iter().for_each(|(stripe, kind)| self.count(stripe, kind, -1));
                Err(error)
            }
        }
    }

    /// A record was carried out when the array was opened, and is still needed.
    pub(crate) fn note_replayed(&self, sequence: u64) {
        self.replayed.borrow_mut().push(sequence);
    }

    /// Whether such records are kept.
    pub(crate) fn has_replayed(&self) -> bool {
        !self.replayed.borrow().is_empty()
    }

    /// Releases them durably.
    pub(crate) async fn forget_replayed(&self) -> Result<(), ArrayError> {
        let replayed = self.replayed.borrow().clone();
        for sequence in replayed {
            self.journal.release(sequence);
        }
        self.journal.mark().await?;
        self.replayed.borrow_mut().clear();
        Ok(())
    }

    /// The record's effects are in place.
    pub(crate) fn note_applied(&self, logged: Logged) {
        if logged.kind == Kind::Data {
            self.journal.note_placed(logged.sequence);
        }
        self.applied.borrow_mut().push(logged);
    }

    /// What the flush that is about to begin makes durable.
    pub(crate) fn take_applied(&self) -> Vec<Logged> {
        std::mem::take(&mut *self.applied.borrow_mut())
    }

    /// The flush did not work.
    pub(crate) fn put_back(&self, applied: Vec<Logged>) {
        self.applied.borrow_mut().extend(applied);
    }

    /// The flush worked.
    pub(crate) fn note_durable(&self, applied: Vec<Logged>) {
        for logged in applied {
            self.count(logged.stripe, logged.kind, -1);
            if self.keeps_sums {
                self.before_checkpoint.borrow_mut().push(logged);
                continue;
            }
            if logged.kind == Kind::Intent {
                self.over.set(self.over.get() + 1);
            }
            self.journal.release(logged.sequence);
        }
    }

    /// A checkpoint is about to begin, which makes superfluous what was recorded until now.
    pub(crate) fn begin_checkpoint(&self) {
        self.in_checkpoint.borrow_mut().append(&mut self.before_checkpoint.borrow_mut());
    }

    /// The checkpoint has ended: well, or not.
    pub(crate) fn end_checkpoint(&self, checkpointed: bool) {
        let covered = self.in_checkpoint.take();
        if !checkpointed {
            self.before_checkpoint.borrow_mut().extend(covered);
            return;
        }
        for logged in covered {
            self.journal.release(logged.sequence);
        }
    }

    /// Records durably which intents are over, where any are: what was flushed must not be taken
    /// for a write under way.
    pub(crate) async fn mark(&self) -> Result<(), ArrayError> {
        let over = self.over.get();
        // Not "somebody is at it": what they record must be durable when this ends.
        if over > self.marked.get() {
            self.journal.mark().await?;
            self.marked.set(self.marked.get().max(over));
        }
        Ok(())
    }

    /// Whether so much of the journal is taken, and so much of that could be released, that it is
    /// time to make room. `oldest_pending`: the oldest record that is still to be destaged, for
    /// nothing behind it is freed by a release; `full_quarters`: how much of the journal is much.
    pub(crate) fn is_filling(&self, oldest_pending: Option<u64>, full_quarters: u64) -> bool {
        let held = self.journal.held(oldest_pending);
        let over = (self.applied.borrow().len() + self.before_checkpoint.borrow().len()) as u64;
        held.bytes * 4 > held.ring_bytes * full_quarters
            && held.bytes_before * 4 >= held.ring_bytes
            && over > 0
            && over * 4 >= held.live_records
    }
}
