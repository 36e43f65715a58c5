//! Pieces of frozen buffers that a memory drive keeps instead of a copy. This saves a long write
//! one copy. When the piece is overwritten, its memory returns to its pool for the next write.
//!
//! Pieces never overlap: a piece kept by one drive of a mirror is copied by the others. So once
//! only drives hold views of an allocation, each piece belongs to one drive, which may write to it.
//!
//! A piece keeps its whole allocation alive, although other pieces of it may be overwritten first.
//! Drives may therefore hold unused pool memory up to a quarter of the memory they use, plus
//! [`SLACK_BYTES`]; beyond that they copy.

use std::rc::{Rc, Weak};

use super::{Allocation, Buffer, CLASSES, SMALLEST_CLASS_LOG2};

/// Length of a piece.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

/// Allowance for requests whose pieces are kept one at a time, and a reserve.
const SLACK_BYTES: usize = 32 << 20;

/// Memory of one pool that drives keep.
#[derive(Clone, Copy, Default)]
pub(super) struct KeptBytes {
    /// Total size of the pieces.
    used: usize,
    /// Total size of the allocations that contain them.
    held: usize,
}

/// Kept pieces of one allocation. Their starts are multiples of the piece length apart.
#[derive(Clone, Copy, Default)]
pub(super) struct KeptPieces {
    /// Bitmap by piece number.
    map: u64,
    /// Offset of piece 0 in bytes; meaningful once a piece is kept.
    first_start: usize,
}

const _: () =
    assert!(1 << (SMALLEST_CLASS_LOG2 as usize + CLASSES - 1) <= 64 * PIECE_BYTES, "a bit for each");

/// A piece of a frozen buffer, held as long as a drive needs it.
pub(crate) struct Kept(Buffer);

impl Kept {
    /// Keeps a view of [`PIECE_BYTES`]. `None` if the drive must copy it: the buffer is still
    /// mutable, another drive keeps the piece, or too much unused memory would be held.
    pub(crate) fn of(buffer: &Buffer) -> Option<Self> {
        assert_eq!(buffer.len(), PIECE_BYTES, "pieces have one length");
        let allocation = buffer.allocation.as_ref().filter(|allocation| allocation.frozen.get())?;
        let pool = allocation.pool.as_ref().and_then(Weak::upgrade)?;
        let pieces = allocation.kept.get().with(buffer.start)?;
        let KeptBytes { mut used, mut held } = pool.kept.get();
        used += PIECE_BYTES;
        if allocation.kept.get().map == 0 {
            held += allocation.capacity_bytes;
        }
        if held > used + used / 4 + SLACK_BYTES {
            return None;
        }
        pool.kept.set(KeptBytes { used, held });
        allocation.kept.set(pieces);
        Some(Self(buffer.clone()))
    }

    fn allocation(&self) -> &Rc<Allocation> {
        self.0.allocation.as_ref().expect("phantoms are never kept")
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        let memory = self.0.as_ptr().expect("phantoms are never kept");
        // SAFETY: in bounds and initialised, as in `Buffer::with`. The allocation was frozen while
        // no access to it was in progress, and stays frozen while views such as this one exist, so
        // no buffer gives out a mutable reference. `bytes_mut` of other pieces does, but pieces do
        // not overlap.
        unsafe { std::slice::from_raw_parts(memory.as_ptr(), PIECE_BYTES) }
    }

    /// The mutable bytes; `None` while views other than kept pieces exist.
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        let allocation = self.allocation();
        if Rc::strong_count(allocation) > allocation.kept.get().map.count_ones() as usize {
            return None;
        }
        let memory = self.0.as_ptr().expect("phantoms are never kept");
        // SAFETY: in bounds and initialised. All views of the allocation are pieces; each is in the
        // bitmap once, no two overlap, and a piece gives out no view of itself. So this borrow is
        // the only access to these bytes.
        Some(unsafe { std::slice::from_raw_parts_mut(memory.as_ptr(), PIECE_BYTES) })
    }
}

impl KeptPieces {
    /// True if a drive keeps a piece.
    pub(super) fn has_pieces(self) -> bool {
        self.map != 0
    }

    /// Adds the piece at `start`; `None` if it would, or might, overlap another.
    fn with(self, start: usize) -> Option<Self> {
        let first_start = start % PIECE_BYTES;
        let bit = 1 << (start / PIECE_BYTES);
        let is_apart = self.map == 0 || (first_start == self.first_start && self.map & bit == 0);
        is_apart.then_some(Self { map: self.map | bit, first_start })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let allocation = self.allocation();
        let KeptPieces { mut map, first_start } = allocation.kept.get();
        map &= !(1 << (self.0.start / PIECE_BYTES));
        allocation.kept.set(KeptPieces { map, first_start });
        let Some(pool) = allocation.pool.as_ref().and_then(Weak::upgrade) else { return };
        let KeptBytes { used, held } = pool.kept.get();
        let given_back = if map == 0 { allocation.capacity_bytes } else { 0 };
        pool.kept.set(KeptBytes { used: used - PIECE_BYTES, held: held - given_back });
    }
}

#[cfg(test)]
mod tests {
    use super::super::BufferPool;
    use super::*;

    const MIB: usize = 1 << 20;

    fn frozen(pool: &BufferPool, length: usize) -> Buffer {
        let buffer = pool.allocate(length);
        buffer.freeze();
        buffer
    }

    /// Bytes used and bytes held.
    fn kept_of(pool: &BufferPool) -> (usize, usize) {
        let KeptBytes { used, held } = pool.shared.kept.get();
        (used, held)
    }

    fn piece(buffer: &Buffer, number: usize) -> Buffer {
        buffer.slice(number * PIECE_BYTES..(number + 1) * PIECE_BYTES)
    }

    #[test]
    fn only_frozen_pooled_buffers_are_kept() {
        let pool = BufferPool::new(MIB);
        assert!(Kept::of(&pool.allocate(PIECE_BYTES)).is_none(), "it may change");
        assert!(Kept::of(&frozen(&pool, PIECE_BYTES)).is_some());
        assert!(Kept::of(&piece(&frozen(&pool, 8 * MIB), 0)).is_none(), "too large for the pool to keep");
        assert!(Kept::of(&Buffer::phantom(PIECE_BYTES)).is_none());
        let longest = frozen(&pool, 4 * MIB);
        assert_eq!((0..64).filter_map(|number| Kept::of(&piece(&longest, number))).count(), 64);
    }

    #[test]
    fn pieces_do_not_overlap() {
        let pool = BufferPool::new(MIB);
        let buffer = frozen(&pool, MIB);
        let first = Kept::of(&piece(&buffer, 1));
        assert!(first.is_some());
        assert!(Kept::of(&piece(&buffer, 1)).is_none(), "kept by another drive");
        let half = PIECE_BYTES / 2;
        for start in [half, PIECE_BYTES + half, 5 * PIECE_BYTES + half] {
            assert!(
                Kept::of(&buffer.slice(start..start + PIECE_BYTES)).is_none(),
                "overlaps, or might overlap, another drive's piece"
            );
        }
        drop(first);
        assert!(Kept::of(&buffer.slice(half..half + PIECE_BYTES)).is_some(), "its piece was given back");
    }

    #[test]
    fn piece_is_mutable_only_when_drives_alone_hold_it() {
        let pool = BufferPool::new(MIB);
        let buffer = frozen(&pool, MIB);
        let mut first = Kept::of(&piece(&buffer, 0)).expect("kept");
        let mut second = Kept::of(&piece(&buffer, 1)).expect("kept");
        let elsewhere = piece(&buffer, 9);
        drop(buffer);
        assert!(first.bytes_mut().is_none(), "another view could still be cloned");
        drop(elsewhere);
        first.bytes_mut().expect("only drives hold it").fill(1);
        second.bytes_mut().expect("only drives hold it").fill(2);
        drop(second);
        assert!(first.bytes().iter().all(|&byte| byte == 1));
        assert!(first.bytes_mut().is_some());
    }

    #[test]
    fn memory_held_by_small_pieces_is_bounded() {
        let pool = BufferPool::new(0);
        let whole: Vec<Kept> = (0..64)
            .map(|_| frozen(&pool, MIB))
            .flat_map(|buffer| (0..16).filter_map(move |number| Kept::of(&piece(&buffer, number))))
            .collect();
        assert_eq!(whole.len(), 64 * 16, "every allocation is fully used");
        let pieces: Vec<Kept> = (0..200).filter_map(|_| Kept::of(&piece(&frozen(&pool, MIB), 0))).collect();
        let (used, held) = kept_of(&pool);
        assert_eq!((used, held), (64 * MIB + pieces.len() * PIECE_BYTES, (64 + pieces.len()) * MIB));
        assert!(pieces.len() >= 48, "{} in a quarter of 64 MiB and in the slack", pieces.len());
        assert!(held <= used + used / 4 + SLACK_BYTES);
        drop(pieces);
        assert_eq!(kept_of(&pool), (64 * MIB, 64 * MIB));
        drop(whole);
        assert_eq!(kept_of(&pool), (0, 0));
    }

    #[test]
    fn kept_pieces_may_outlive_the_pool() {
        let pool = BufferPool::new(MIB);
        let kept = Kept::of(&frozen(&pool, PIECE_BYTES)).expect("kept");
        drop(pool);
        assert!(kept.bytes().iter().all(|&byte| byte == 0));
    }
}
