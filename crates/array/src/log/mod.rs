//! Records that an array logs before it writes in place, and when they can be released.
//!
//! While part of a stripe is being written, its data and parity disagree; if power is cut at that
//! moment and a drive is lost with it, blocks that no client was writing could not be
//! reconstructed. So everything about to be written in place, data and parity, is in the journal
//! first (*redo*). A full stripe needs only a note that the write is in flight (*intent*), since
//! all its data blocks are being written. A stripe never written needs nothing: its region reads as
//! zeros until it is complete.
//!
//! A record is live until its effects are durable in place: until a flush of the drives that began
//! after them has ended. With checksums it stays in the journal for longer, until a checkpoint has
//! made its checksums durable. An intent does not hold the data, so replay could not combine
//! intents and redo records of one stripe: before a record of one kind is logged, a stripe with a
//! live record of the other kind is made durable.
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
use stripewise_drive::Rounds;

/// A record in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Logged {
    pub sequence: u64,
    pub stripe: u64,
    pub kind: Kind,
}

/// Stripe and kind of each record of an append.
pub(crate) type Names = SmallVec<[(u64, Kind); 4]>;

pub(crate) struct WriteLog {
    pub journal: Journal,
    /// Live redo records and intents per stripe.
    live: RefCell<FxHashMap<u64, (u32, u32)>>,
    /// Records in place, possibly only in the drives' caches.
    applied: RefCell<Vec<Logged>>,
    /// Records durable in place, but in regions that the map on the drives does not have as written
    /// yet.
    early: RefCell<Vec<Logged>>,
    /// Keeps records until their checksums are durable too.
    pub keeps_sums: bool,
    /// Records durable in place, whose checksums may not be.
    before_checkpoint: RefCell<Vec<Logged>>,
    /// Records in `before_checkpoint` when the current checkpoint began.
    in_checkpoint: RefCell<Vec<Logged>>,
    /// Records replayed when the array was opened, kept until the blocks that are dead because of
    /// them are recorded as such.
    replayed: RefCell<Vec<u64>>,
    /// True if none of the journal's areas held anything when it was opened.
    pub was_empty: Cell<bool>,
    /// Number of acknowledged batches, at least, that were on no area when the journal was opened.
    pub missing_batches: Cell<u64>,
    /// Number of areas in which the newest batch may have been on an unreadable page then.
    pub hiding_areas: Cell<usize>,
    /// Releases of records covered by a checkpoint, one at a time.
    pub releases: Rounds,
    /// Number of intents released; a crash takes those not marked for writes in flight.
    intents_released: Cell<u64>,
    /// Number of them that are released durably.
    intents_marked: Cell<u64>,
    pub checkpointing: Cell<bool>,
    /// Number of writes waiting for space in the journal; only a flush can free it.
    pub waiting: Cell<u32>,
    /// Notified when the array stops taking writes: no waiting write gets space.
    pub room_denied: Event,
    pub making_room: Cell<bool>,
    pub marking_regions: Cell<bool>,
    /// Flushes of the drives, one at a time.
    pub flushes: Rounds,
}

impl WriteLog {
    /// With `keeps_sums` records stay until [`Self::end_checkpoint`].
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
            missing_batches: Cell::new(0),
            hiding_areas: Cell::new(0),
            releases: Rounds::default(),
            intents_released: Cell::new(0),
            intents_marked: Cell::new(0),
            checkpointing: Cell::new(false),
            waiting: Cell::new(0),
            room_denied: Event::new(),
            making_room: Cell::new(false),
            marking_regions: Cell::new(false),
            flushes: Rounds::default(),
        }
    }

    /// True if the journal may hold a record of these stripes.
    pub(crate) fn has_any(&self, stripes: std::ops::Range<u64>) -> bool {
        let is_one = |logged: &Logged| stripes.contains(&logged.stripe);
        self.before_checkpoint.borrow().iter().any(is_one)
            || self.in_checkpoint.borrow().iter().any(is_one)
            || stripes.into_iter().any(|stripe| self.live.borrow().contains_key(&stripe))
    }

    /// Counts a `Data` record of the stripe.
    pub(crate) fn note_data(&self, stripe: u64) {
        self.count(stripe, Kind::Data, 1);
    }

    /// Adds records whose data a crash would make unreachable: they are released when the map on
    /// the drives has their regions.
    pub(crate) fn note_early(&self, logged: Vec<Logged>) {
        self.early.borrow_mut().extend(logged);
    }

    /// True if there are early records.
    pub(crate) fn has_any_early(&self) -> bool {
        !self.early.borrow().is_empty()
    }

    /// True if the stripe has an early record.
    pub(crate) fn has_early(&self, stripe: u64) -> bool {
        self.early.borrow().iter().any(|logged| logged.stripe == stripe)
    }

    /// True if any of these stripes has an early record.
    pub(crate) fn has_early_in(&self, stripes: &std::ops::Range<u64>) -> bool {
        self.early.borrow().iter().any(|logged| stripes.contains(&logged.stripe))
    }

    /// Makes the early records of these stripes releasable: their contents no longer matter.
    pub(crate) fn forget_early(&self, stripes: std::ops::Range<u64>) {
        let (gone, kept) = self.take_early().into_iter().partition(|logged| stripes.contains(&logged.stripe));
        self.note_early(kept);
        self.note_durable(gone);
    }

    /// True if the stripe has a record that is not durable in place yet.
    pub(crate) fn has_live(&self, stripe: u64) -> bool {
        self.live.borrow().contains_key(&stripe)
    }

    /// True if the stripe's only live record is one intent.
    pub(crate) fn is_alone(&self, stripe: u64) -> bool {
        self.live.borrow().get(&stripe) == Some(&(0, 1))
    }

    /// Takes the early records; the caller puts back those that still are.
    pub(crate) fn take_early(&self) -> Vec<Logged> {
        std::mem::take(&mut *self.early.borrow_mut())
    }

    /// True if the stripe must be made durable before a record of this kind is logged for it.
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

    /// True if these records fit into one append.
    pub(crate) fn fits(&self, records: &[Record]) -> bool {
        self.journal.fits(Journal::bytes_of(records))
    }

    /// Counts records as live that are about to be appended to the journal.
    pub(crate) fn begin_records(&self, records: &[Record]) -> Names {
        let names: Names = records.iter().map(|record| (record.stripe, record.kind)).collect();
        names.iter().for_each(|&(stripe, kind)| self.count(stripe, kind, 1));
        names
    }

    /// Records the append's outcome: the records' sequences, or an error, after which they no
    /// longer count.
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

    /// Keeps a record that was replayed when the array was opened.
    pub(crate) fn note_replayed(&self, sequence: u64) {
        self.replayed.borrow_mut().push(sequence);
    }

    /// True if replayed records are kept.
    pub(crate) fn has_replayed(&self) -> bool {
        !self.replayed.borrow().is_empty()
    }

    /// Releases the replayed records durably.
    pub(crate) async fn forget_replayed(&self) -> Result<(), ArrayError> {
        let replayed = self.replayed.borrow().clone();
        for sequence in replayed {
            self.journal.release(sequence);
        }
        self.journal.mark().await?;
        self.replayed.borrow_mut().clear();
        Ok(())
    }

    /// Marks a record as in place.
    pub(crate) fn note_applied(&self, logged: Logged) {
        if logged.kind == Kind::Data {
            self.journal.note_placed(logged.sequence);
        }
        self.applied.borrow_mut().push(logged);
    }

    /// Takes the records that the next flush makes durable.
    pub(crate) fn take_applied(&self) -> Vec<Logged> {
        std::mem::take(&mut *self.applied.borrow_mut())
    }

    /// Puts records back after a failed flush.
    pub(crate) fn put_back(&self, applied: Vec<Logged>) {
        self.applied.borrow_mut().extend(applied);
    }

    /// Marks records as durable in place, after a flush.
    pub(crate) fn note_durable(&self, applied: Vec<Logged>) {
        for logged in applied {
            self.count(logged.stripe, logged.kind, -1);
            if self.keeps_sums {
                self.before_checkpoint.borrow_mut().push(logged);
                continue;
            }
            if logged.kind == Kind::Intent {
                self.intents_released.set(self.intents_released.get() + 1);
            }
            self.journal.release(logged.sequence);
        }
    }

    /// Starts a checkpoint, which makes all earlier records releasable.
    pub(crate) fn begin_checkpoint(&self) {
        self.in_checkpoint.borrow_mut().append(&mut self.before_checkpoint.borrow_mut());
    }

    /// Ends a checkpoint, which succeeded or failed.
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

    /// Records durably which intents were released, if any were: a write that was flushed must not
    /// be taken for one in flight.
    pub(crate) async fn mark(&self) -> Result<(), ArrayError> {
        let released = self.intents_released.get();
        // Waiting for a concurrent mark would not do: these releases must be durable on return.
        if released > self.intents_marked.get() {
            self.journal.mark().await?;
            self.intents_marked.set(self.intents_marked.get().max(released));
        }
        Ok(())
    }

    /// True if it is time to free space: enough of the journal is in use, and enough of that can be
    /// released. `oldest_pending` is the oldest record that has to be destaged: a release frees
    /// nothing after it. `full_quarters` is the threshold in quarters of the journal.
    pub(crate) fn is_filling(&self, oldest_pending: Option<u64>, full_quarters: u64) -> bool {
        let held = self.journal.held(oldest_pending);
        let releasable = (self.applied.borrow().len() + self.before_checkpoint.borrow().len()) as u64;
        held.bytes * 4 > held.ring_bytes * full_quarters
            && held.bytes_before * 4 >= held.ring_bytes
            && releasable > 0
            && releasable * 4 >= held.live_records
    }
}
