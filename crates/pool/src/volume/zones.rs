//! Routes the requests to a volume that is being converted to the array, or arrays, that hold the
//! data.
//!
//! A conversion proceeds through the volume from its beginning. Data below the *frontier*, which is
//! recorded, is only in the new array. Data between the frontier and the *cursor* is in both, and
//! is written to both, so that the frontier can move up to the cursor and a crash before that loses
//! nothing; it is read from the old array. Data beyond the cursor is only in the old array.
//! Requests across these limits are split. Writes hold their ranges (`volume/range_gate.rs`), so
//! that both arrays see the writes of a block in the same order, and no client writes data that is
//! being copied. A write that fails in the new array succeeds for the client, because the old array
//! has it; it takes the cursor back, and the data is copied again. A cancelled conversion works the
//! same way with the arrays exchanged, up to where it had come; data behind that never left the
//! array that is now the new one. Faults expected: either array fails, the new one has no space.

use std::cell::Cell;

use futures_util::future::{join, join_all};
use smallvec::SmallVec;
use stripewise_drive::Buffer;

use crate::BLOCK_BYTES;
use crate::volume::range_gate::RangeGate;
use crate::volume::sliced::Sliced;
use stripewise_array::mutation::{self, Mutation};
use stripewise_array::{ArrayError, BlockArray, Extent, push_extent};

/// A volume that is being converted.
pub(crate) struct Zones<A = Sliced> {
    pub old: A,
    pub new: A,
    pub gate: RangeGate,
    /// The recorded frontier.
    pub committed: Cell<u64>,
    pub cursor: Cell<u64>,
    /// From here on the new array has had all data from the start: less than the volume's size
    /// after a conversion was cancelled.
    end_bytes: u64,
    /// The conversion is being cancelled: nothing more is copied.
    pub is_cancelled: Cell<bool>,
    /// Offset below which whole rows of the old arrays have given their slabs back.
    pub released_below: Cell<u64>,
    /// Loss count of the new array when nothing was copied beyond the frontier yet.
    pub losses: Cell<u64>,
}

/// Way to clear the content of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clearing {
    /// The range may still read as its former content.
    Discard,
    /// The range reads as zeros.
    WriteZeroes,
}

impl Clearing {
    pub(crate) async fn execute(
        self,
        array: &impl BlockArray,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Result<(), ArrayError> {
        match self {
            Self::Discard => array.discard(offset_bytes, length_bytes).await,
            Self::WriteZeroes => array.write_zeroes(offset_bytes, length_bytes).await,
        }
    }
}

/// Arrays that hold a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zone {
    New,
    Both,
    Old,
}

struct Piece {
    zone: Zone,
    start: u64,
    end: u64,
}

type Pieces = SmallVec<[Piece; 4]>;

impl<A: BlockArray> Zones<A> {
    /// A conversion that has reached `committed` and proceeds to `end_bytes`.
    pub(crate) fn new(old: A, new: A, committed: u64, end_bytes: u64) -> Self {
        let end_bytes = end_bytes.min(old.capacity_bytes());
        let committed = committed.min(end_bytes);
        let losses = Cell::new(new.refused_flushes());
        Self {
            old,
            new,
            gate: RangeGate::default(),
            committed: Cell::new(committed),
            cursor: Cell::new(committed),
            end_bytes,
            is_cancelled: Cell::new(false),
            released_below: Cell::new(0),
            losses,
        }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        self.new.capacity_bytes()
    }

    /// End of the data to be copied.
    pub(crate) fn end_bytes(&self) -> u64 {
        self.end_bytes
    }

    fn pieces(&self, start: u64, end: u64) -> Pieces {
        let (committed, cursor) = (self.committed.get(), self.cursor.get());
        let bounds = [
            (Zone::New, 0, committed),
            (Zone::Both, committed, cursor),
            (Zone::Old, cursor, self.end_bytes),
            (Zone::New, self.end_bytes, u64::MAX),
        ];
        let piece = |(zone, from, to): (Zone, u64, u64)| {
            let (start, end) = (start.max(from), end.min(to));
            (start < end).then_some(Piece { zone, start, end })
        };
        bounds.into_iter().filter_map(piece).collect()
    }

    fn read_from(&self, zone: Zone) -> &A {
        if zone == Zone::New { &self.new } else { &self.old }
    }

    pub(crate) async fn read(&self, offset_bytes: u64, length: usize) -> Result<Buffer, ArrayError> {
        self.new.check_range(offset_bytes, length as u64)?;
        let pieces = self.pieces(offset_bytes, offset_bytes + length as u64);
        // A read is counted in its array before its first wait, so a move of the frontier waits for
        // it.
        let reads = pieces
            .iter()
            .map(|piece| self.read_from(piece.zone).read(piece.start, (piece.end - piece.start) as usize));
        let mut reads: SmallVec<[_; 4]> = reads.collect();
        if reads.len() < 2 {
            return match reads.pop() {
                Some(read) => read.await,
                None => self.new.read(offset_bytes, length).await,
            };
        }
        let buffer = self.new.buffers().allocate(length);
        for (piece, read) in pieces.iter().zip(join_all(reads).await) {
            let at = (piece.start - offset_bytes) as usize;
            let bytes = read?;
            buffer.slice(at..at + bytes.len()).copy_from(&bytes);
        }
        Ok(buffer)
    }

    pub(crate) async fn write(&self, offset_bytes: u64, data: Buffer, fua: bool) -> Result<(), ArrayError> {
        let end = offset_bytes.saturating_add(data.len() as u64);
        self.new.check_range(offset_bytes, data.len() as u64)?;
        let _held = self.gate.enter(offset_bytes, end).await;
        let writes = self.pieces(offset_bytes, end).into_iter().map(|piece| {
            let (from, to) = ((piece.start - offset_bytes) as usize, (piece.end - offset_bytes) as usize);
            let part = data.slice(from..to);
            async move {
                match piece.zone {
                    Zone::New => self.new.write(piece.start, part, fua).await,
                    Zone::Old => self.old.write(piece.start, part, fua).await,
                    Zone::Both if mutation::is_chosen(Mutation::WriteOldArrayOnly) => {
                        self.old.write(piece.start, part, fua).await
                    }
                    Zone::Both => {
                        let old = self.old.write(piece.start, part.clone(), fua);
                        let new = self.new.write(piece.start, part, fua);
                        self.old_answer(piece.start, join(old, new).await)
                    }
                }
            }
        });
        join_all(writes).await.into_iter().collect()
    }

    /// Outcome of a write to both arrays: that of the old one counts. If either failed the arrays
    /// may differ from here on, and the cursor moves back.
    fn old_answer(
        &self,
        start: u64,
        (old, new): (Result<(), ArrayError>, Result<(), ArrayError>),
    ) -> Result<(), ArrayError> {
        if old.is_err() || new.is_err() {
            let start = (start / BLOCK_BYTES * BLOCK_BYTES).max(self.committed.get());
            self.cursor.set(self.cursor.get().min(start));
        }
        old
    }

    pub(crate) async fn flush(&self) -> Result<(), ArrayError> {
        let is_moved = || self.committed.get() == self.end_bytes;
        if is_moved() {
            return self.new.flush().await;
        }
        let (old, new) = join(self.old.flush(), self.new.flush()).await;
        // The conversion may have ended, and the old array with it. The new array is not needed
        // until it is the only one with some of the data.
        let old = if is_moved() { Ok(()) } else { old };
        let has_some = self.committed.get() > 0 || self.end_bytes < self.size_bytes();
        let new = if has_some { new } else { Ok(()) };
        old.and(new)
    }

    /// Clears a range, and calls `cleared_in` for each array in which something was cleared. Where
    /// both arrays hold it, it is written with zeros in any case: the extent of a discard depends
    /// on the layout, and the arrays must not differ.
    pub(crate) async fn clear(
        &self,
        how: Clearing,
        offset_bytes: u64,
        length_bytes: u64,
        cleared_in: impl AsyncFn(&A, u64, u64),
    ) -> Result<(), ArrayError> {
        self.new.check_range(offset_bytes, length_bytes)?;
        let end = offset_bytes + length_bytes;
        let _held = self.gate.enter(offset_bytes, end).await;
        let mut result = Ok(());
        for Piece { zone, start, end } in self.pieces(offset_bytes, end) {
            let length = end - start;
            let cleared = match zone {
                Zone::New => how.execute(&self.new, start, length).await,
                Zone::Old => how.execute(&self.old, start, length).await,
                Zone::Both => {
                    let (old, new) =
                        (self.old.write_zeroes(start, length), self.new.write_zeroes(start, length));
                    self.old_answer(start, join(old, new).await)
                }
            };
            let has_some = |array: Zone| zone == array || zone == Zone::Both;
            if cleared.is_ok() && has_some(Zone::New) {
                cleared_in(&self.new, start, length).await;
            }
            if cleared.is_ok() && has_some(Zone::Old) {
                cleared_in(&self.old, start, length).await;
            }
            result = result.and(cleared);
        }
        result
    }

    pub(crate) fn extents(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        most: usize,
    ) -> Result<Vec<Extent>, ArrayError> {
        self.new.check_range(offset_bytes, length_bytes)?;
        let mut extents = Vec::new();
        for piece in self.pieces(offset_bytes, offset_bytes + length_bytes) {
            for extent in self.read_from(piece.zone).extents(piece.start, piece.end - piece.start, most)? {
                if !push_extent(&mut extents, extent.length_bytes, extent.written, most) {
                    return Ok(extents);
                }
            }
            let covered_bytes: u64 = extents.iter().map(|extent| extent.length_bytes).sum();
            if offset_bytes + covered_bytes < piece.end {
                return Ok(extents);
            }
        }
        Ok(extents)
    }

    /// True if `question` answers true for all of a range, asked of the arrays that it is read
    /// from.
    pub(crate) fn ask_all(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        question: impl Fn(&A, u64, u64) -> Result<bool, ArrayError>,
    ) -> Result<bool, ArrayError> {
        self.new.check_range(offset_bytes, length_bytes)?;
        for piece in self.pieces(offset_bytes, offset_bytes + length_bytes) {
            if !question(self.read_from(piece.zone), piece.start, piece.end - piece.start)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
