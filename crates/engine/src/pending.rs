//! Writes that are acknowledged and in the journal, but not yet in place: what reads must see, and what destaging has to do.
//!
//! One entry per stripe with the pieces in the order in which they were acknowledged; where they overlap the last counts. A
//! piece stays until it is in place, so a read always finds the newest version either here or there.
//!
//! Memory: the pieces are copies, at most [`PENDING_BYTES`] of them; further writes wait.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use smallvec::SmallVec;
use stripewise_drive::{Buffer, Semaphore, SemaphorePermit};

/// Bytes kept at a time.
pub(crate) const PENDING_BYTES: u64 = 64 << 20;

/// New data of a contiguous range of a stripe's data.
pub(crate) struct PendingPiece {
    /// Byte of the stripe's data.
    pub from: u64,
    pub data: Buffer,
    /// Its record in the journal.
    pub sequence: u64,
    /// Held until the piece is in place.
    #[expect(dead_code, reason = "its drop is what it is for")]
    pub room: Option<SemaphorePermit>,
}

impl PendingPiece {
    pub fn to(&self) -> u64 {
        self.from + self.data.len() as u64
    }
}

struct PendingStripe {
    pieces: Vec<PendingPiece>,
    since_ns: u64,
}

/// All pending writes of an array.
pub(crate) struct Pending {
    stripes: RefCell<BTreeMap<u64, PendingStripe>>,
    bytes: Cell<u64>,
    pub room: Semaphore,
}

impl Pending {
    pub fn new() -> Self {
        Self { stripes: RefCell::default(), bytes: Cell::new(0), room: Semaphore::new(PENDING_BYTES) }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.get() == 0
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    pub fn insert(&self, stripe: u64, piece: PendingPiece, now_ns: u64) {
        self.bytes.set(self.bytes.get() + piece.data.len() as u64);
        let mut stripes = self.stripes.borrow_mut();
        let entry =
            stripes.entry(stripe).or_insert_with(|| PendingStripe { pieces: Vec::new(), since_ns: now_ns });
        entry.pieces.push(piece);
    }

    /// What is pending of a range of a stripe's data, oldest first: where it begins and the bytes.
    pub fn overlapping(&self, stripe: u64, from: u64, to: u64) -> SmallVec<[(u64, Buffer); 2]> {
        let stripes = self.stripes.borrow();
        let Some(entry) = stripes.get(&stripe) else { return SmallVec::new() };
        let pieces = entry.pieces.iter().filter(|piece| piece.from < to && from < piece.to());
        pieces
            .map(|piece| {
                let (start, end) = (piece.from.max(from), piece.to().min(to));
                (start, piece.data.slice((start - piece.from) as usize..(end - piece.from) as usize))
            })
            .collect()
    }

    /// All that is pending of a stripe, oldest first, and the last of their sequences.
    pub fn snapshot(&self, stripe: u64) -> (SmallVec<[(u64, Buffer); 2]>, u64) {
        let last = |entry: &PendingStripe| entry.pieces.iter().map(|piece| piece.sequence).max();
        let covers = self.stripes.borrow().get(&stripe).and_then(last).unwrap_or(0);
        (self.overlapping(stripe, 0, u64::MAX), covers)
    }

    /// The stripe's pieces up to this sequence are in place. Gives their sequences.
    pub fn remove(&self, stripe: u64, covers: u64) -> Vec<u64> {
        let mut stripes = self.stripes.borrow_mut();
        let Some(entry) = stripes.get_mut(&stripe) else { return Vec::new() };
        let (gone, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut entry.pieces).into_iter().partition(|piece| piece.sequence <= covers);
        entry.pieces = kept;
        if entry.pieces.is_empty() {
            stripes.remove(&stripe);
        }
        let bytes: u64 = gone.iter().map(|piece| piece.data.len() as u64).sum();
        self.bytes.set(self.bytes.get() - bytes);
        let mut sequences: Vec<u64> = gone.into_iter().map(|piece| piece.sequence).collect();
        sequences.dedup();
        sequences
    }

    /// Whether a record's data is pending.
    pub fn holds(&self, stripe: u64, sequence: u64) -> bool {
        let stripes = self.stripes.borrow();
        stripes.get(&stripe).is_some_and(|entry| entry.pieces.iter().any(|piece| piece.sequence == sequence))
    }

    /// Stripes in a range.
    pub fn stripes_in(&self, range: std::ops::Range<u64>) -> Vec<u64> {
        self.stripes.borrow().range(range).map(|(stripe, _)| *stripe).collect()
    }

    /// The stripes whose records are oldest, at most `count`, in the order in which they lie on the drives.
    pub fn oldest(&self, count: usize) -> Vec<u64> {
        let stripes = self.stripes.borrow();
        let first = |entry: &PendingStripe| entry.pieces.iter().map(|piece| piece.sequence).min();
        let mut by_age: Vec<(u64, u64)> =
            stripes.iter().map(|(stripe, entry)| (first(entry).unwrap_or(0), *stripe)).collect();
        if by_age.len() > count {
            by_age.select_nth_unstable(count);
            by_age.truncate(count);
        }
        let mut oldest: Vec<u64> = by_age.into_iter().map(|(_, stripe)| stripe).collect();
        oldest.sort_unstable();
        oldest
    }

    /// When the stripe that waits longest began to.
    pub fn waiting_since_ns(&self) -> Option<u64> {
        self.stripes.borrow().values().map(|entry| entry.since_ns).min()
    }
}
