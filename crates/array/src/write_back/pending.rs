//! Pending writes: acknowledged and in the journal, but not yet in place. Reads must see them, and
//! destaging writes them.
//!
//! One entry per stripe with the pieces in the order of their acknowledgement; where they overlap,
//! the last one counts. A piece stays until it is in place, so a read always finds the newest
//! version either here or there.
//!
//! Memory: the pieces are copies, at most [`crate::tuning::Tuning::pending_bytes`] of them; further
//! writes wait.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;

use smallvec::SmallVec;
use stripewise_drive::{Buffer, Semaphore, SemaphorePermit};
use stripewise_layout::Geometry;

use crate::journal::Reservation;
use crate::write_back::destage_round::{Extent, Shape, next_round};

/// Space reserved for a deferred piece before it waits for its stripe.
pub(crate) struct Room {
    pub journal: Reservation,
    pub memory: SemaphorePermit,
}

/// New data of a contiguous range of a stripe.
pub(crate) struct PendingPiece {
    /// Offset in the stripe's data.
    pub from: u64,
    pub data: Buffer,
    /// Sequence of its record in the journal.
    pub sequence: u64,
    /// Held until the piece is in place.
    #[expect(dead_code, reason = "held for its drop")]
    pub room: Option<SemaphorePermit>,
}

impl PendingPiece {
    pub(crate) fn to(&self) -> u64 {
        self.from + self.data.len() as u64
    }
}

struct PendingStripe {
    /// Ordered by sequence.
    pieces: Vec<PendingPiece>,
    since_ns: u64,
}

/// Pieces of a stripe's data: offset and bytes.
pub(crate) type Pieces = SmallVec<[(u64, Buffer); 2]>;

/// All pending writes of an array.
pub(crate) struct Pending {
    stripes: RefCell<BTreeMap<u64, PendingStripe>>,
    /// Stripes by the sequence of their first piece.
    by_age: RefCell<BTreeMap<u64, u64>>,
    bytes: Cell<u64>,
    pub room: Semaphore,
}

impl Pending {
    /// Creates an empty set that holds at most this many bytes.
    pub(crate) fn new(bytes: u64) -> Self {
        Self {
            stripes: RefCell::default(),
            by_age: RefCell::default(),
            bytes: Cell::new(0),
            room: Semaphore::new(bytes),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.get() == 0
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    pub(crate) fn insert(&self, stripe: u64, piece: PendingPiece, now_ns: u64) {
        self.bytes.set(self.bytes.get() + piece.data.len() as u64);
        let mut stripes = self.stripes.borrow_mut();
        let entry =
            stripes.entry(stripe).or_insert_with(|| PendingStripe { pieces: Vec::new(), since_ns: now_ns });
        if entry.pieces.is_empty() {
            self.by_age.borrow_mut().insert(piece.sequence, stripe);
        }
        entry.pieces.push(piece);
    }

    /// True if any of these bytes of the volume, all in one stripe, has pending data.
    pub(crate) fn holds_any_of(&self, geometry: &Geometry, start: u64, length: u64) -> bool {
        let location = geometry.locate(start);
        !self.overlapping(location.stripe, location.from, location.from + length).is_empty()
    }

    /// Pending pieces of a range of a stripe's data, oldest first: offset and bytes.
    pub(crate) fn overlapping(&self, stripe: u64, from: u64, to: u64) -> Pieces {
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

    /// Pending data of a range of the volume: must be looked up before the range is read, and
    /// copied over the result.
    pub(crate) fn patches(&self, geometry: &Geometry, start: u64, end: u64) -> Vec<(u64, Buffer)> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut patches = Vec::new();
        let mut at = start;
        for segment in geometry.segments(start, end - start) {
            for (from, bytes) in self.overlapping(segment.stripe, segment.from, segment.to) {
                patches.push((at + from - segment.from, bytes));
            }
            at += segment.to - segment.from;
        }
        patches
    }

    /// Pending pieces of a stripe up to this sequence, oldest first.
    pub(crate) fn up_to(&self, stripe: u64, sequence: u64) -> Pieces {
        let stripes = self.stripes.borrow();
        let Some(entry) = stripes.get(&stripe) else { return SmallVec::new() };
        let pieces = entry.pieces.iter().take_while(|piece| piece.sequence <= sequence);
        pieces.map(|piece| (piece.from, piece.data.clone())).collect()
    }

    /// Pieces of a stripe that the next write destages, oldest first, and the last of their
    /// sequences.
    pub(crate) fn next_round(&self, stripe: u64, shape: Shape) -> Option<(Pieces, u64)> {
        let stripes = self.stripes.borrow();
        let pieces = &stripes.get(&stripe)?.pieces;
        let extent =
            |piece: &PendingPiece| Extent { from: piece.from, to: piece.to(), sequence: piece.sequence };
        let extents: SmallVec<[Extent; 8]> = pieces.iter().map(extent).collect();
        let round = &pieces[..next_round(&extents, shape)];
        let covers = round.last()?.sequence;
        Some((round.iter().map(|piece| (piece.from, piece.data.clone())).collect(), covers))
    }

    /// Removes the stripe's pieces up to this sequence, which are in place. Returns their
    /// sequences.
    pub(crate) fn remove(&self, stripe: u64, covers: u64) -> Vec<u64> {
        let mut stripes = self.stripes.borrow_mut();
        let Some(entry) = stripes.get_mut(&stripe) else { return Vec::new() };
        let Some(first) = entry.pieces.first().map(|piece| piece.sequence) else { return Vec::new() };
        let (gone, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut entry.pieces).into_iter().partition(|piece| piece.sequence <= covers);
        let mut by_age = self.by_age.borrow_mut();
        by_age.remove(&first);
        if let Some(next) = kept.first() {
            by_age.insert(next.sequence, stripe);
            entry.pieces = kept;
        } else {
            stripes.remove(&stripe);
        }
        let bytes: u64 = gone.iter().map(|piece| piece.data.len() as u64).sum();
        self.bytes.set(self.bytes.get() - bytes);
        let mut sequences: Vec<u64> = gone.into_iter().map(|piece| piece.sequence).collect();
        sequences.dedup();
        sequences
    }

    /// Removes a range of a stripe's data from the pieces up to this sequence: it was lost.
    pub(crate) fn cut(&self, stripe: u64, range: Range<u64>, up_to: u64) {
        let Some(PendingStripe { pieces, since_ns }) = self.stripes.borrow_mut().remove(&stripe) else {
            return;
        };
        if let Some(first) = pieces.first() {
            self.by_age.borrow_mut().remove(&first.sequence);
        }
        self.bytes.set(self.bytes.get() - pieces.iter().map(|piece| piece.data.len() as u64).sum::<u64>());
        for piece in pieces {
            if piece.sequence > up_to || piece.to() <= range.start || range.end <= piece.from {
                self.insert(stripe, piece, since_ns);
                continue;
            }
            for (from, to) in [(piece.from, range.start), (range.end, piece.to())] {
                if from < to {
                    let data = piece.data.slice((from - piece.from) as usize..(to - piece.from) as usize);
                    let rest = PendingPiece { from, data, sequence: piece.sequence, room: None };
                    self.insert(stripe, rest, since_ns);
                }
            }
        }
    }

    /// True if a record's data is pending.
    pub(crate) fn holds(&self, stripe: u64, sequence: u64) -> bool {
        let stripes = self.stripes.borrow();
        stripes.get(&stripe).is_some_and(|entry| entry.pieces.iter().any(|piece| piece.sequence == sequence))
    }

    /// True if the stripe has pending data.
    pub(crate) fn has_stripe(&self, stripe: u64) -> bool {
        self.stripes.borrow().contains_key(&stripe)
    }

    /// Stripes in a range that have pending data.
    pub(crate) fn stripes_in(&self, range: Range<u64>) -> Vec<u64> {
        self.stripes.borrow().range(range).map(|(stripe, _)| *stripe).collect()
    }

    /// Stripes with the oldest records, oldest first, at most `count`.
    pub(crate) fn oldest(&self, count: usize) -> Vec<u64> {
        self.by_age.borrow().values().take(count).copied().collect()
    }

    /// Sequence of the oldest piece.
    pub(crate) fn oldest_sequence(&self) -> Option<u64> {
        self.by_age.borrow().first_key_value().map(|(sequence, _)| *sequence)
    }

    /// Sequence of the newest piece.
    pub(crate) fn newest_sequence(&self) -> Option<u64> {
        let stripes = self.stripes.borrow();
        stripes.values().filter_map(|entry| entry.pieces.last().map(|piece| piece.sequence)).max()
    }

    /// Time since which the stripe with the oldest piece has been waiting.
    pub(crate) fn waiting_since_ns(&self) -> Option<u64> {
        let (_, stripe) = self.by_age.borrow().first_key_value().map(|(age, stripe)| (*age, *stripe))?;
        self.stripes.borrow().get(&stripe).map(|entry| entry.since_ns)
    }
}

#[cfg(test)]
mod tests {
    use stripewise_layout::{Level, Shape};

    use super::*;

    #[test]
    fn volume_bytes_are_pending_where_a_piece_covers_them() {
        let interleave_bytes = 16 << 10;
        let shape = Shape { level: Level::Raid5, width: 4, groups: 1, interleave_bytes, rotation_rows: 1 };
        let geometry = Geometry::new(shape, 1 << 20).expect("a possible shape");
        let pending = Pending::new(1 << 20);
        let data = Buffer::from_bytes(&[7; 4096]);
        pending.insert(2, PendingPiece { from: 8192, data, sequence: 1, room: None }, 0);
        let first = 2 * 3 * interleave_bytes + 8192;
        assert!(pending.holds_any_of(&geometry, first, 4096));
        assert!(!pending.holds_any_of(&geometry, first - 4096, 4096));
        assert!(!pending.holds_any_of(&geometry, first + 4096, 4096));
        pending.remove(2, 1);
        assert!(!pending.holds_any_of(&geometry, first, 4096));
    }

    #[test]
    fn a_lost_range_is_cut_out_of_older_pieces() {
        let pending = Pending::new(1 << 20);
        for (sequence, byte) in [(1, 7), (2, 8)] {
            let data = Buffer::from_bytes(&[byte; 12 << 10]);
            pending.insert(2, PendingPiece { from: 4096, data, sequence, room: None }, 0);
        }
        let pieces = || {
            let pieces = pending.overlapping(2, 0, u64::MAX);
            pieces.iter().map(|(from, data)| (*from, data.to_vec()[0], data.len())).collect::<Vec<_>>()
        };
        pending.cut(2, 8192..12_288, 1);
        assert_eq!(pieces(), [(4096, 7, 4096), (12_288, 7, 4096), (4096, 8, 12_288)]);
        assert_eq!((pending.bytes(), pending.oldest_sequence()), (20 << 10, Some(1)));
        pending.cut(2, 0..8192, 1);
        pending.cut(2, 8192..16_384, 1);
        assert_eq!(pieces(), [(4096, 8, 12_288)]);
        assert_eq!((pending.bytes(), pending.oldest_sequence()), (12 << 10, Some(2)));
        pending.cut(2, 0..u64::MAX, 2);
        assert!(pending.is_empty() && !pending.has_stripe(2));
        assert_eq!(pending.oldest_sequence(), None);
    }
}
