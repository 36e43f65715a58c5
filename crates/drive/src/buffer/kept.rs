//! Pieces of frozen buffers that a drive in memory keeps instead of a copy: of a long write that spares one of its copies, and
//! when the piece is overwritten its memory goes back to the pool it came from, for the next write.
//!
//! A piece holds all of its allocation, of which others may be overwritten before it. So of each pool's memory drives keep, beside
//! what they use of it, no more than a quarter of that and [`SLACK_BYTES`]; beyond that they are to copy.

use std::rc::Weak;

use super::Buffer;

/// Memory of requests that are being taken over piece by piece, and some more.
const SLACK_BYTES: usize = 32 << 20;

/// What drives keep of one pool's memory.
#[derive(Clone, Copy, Default)]
pub(super) struct KeptBytes {
    /// Of the pieces.
    used: usize,
    /// Of the allocations that they are in.
    held: usize,
}

/// A piece of a frozen buffer, for as long as a drive wants it.
pub(crate) struct Kept(Buffer);

impl Kept {
    /// `None` where it has to be copied: who has it may change it, or it would hold too much memory that is of no use.
    pub fn of(buffer: &Buffer) -> Option<Self> {
        let allocation = buffer.allocation.as_ref().filter(|allocation| allocation.frozen.get())?;
        let pool = allocation.pool.as_ref().and_then(Weak::upgrade)?;
        let KeptBytes { mut used, mut held } = pool.kept.get();
        used += buffer.len();
        if allocation.kept_bytes.get() == 0 {
            held += allocation.capacity_bytes;
        }
        if held > used + used / 4 + SLACK_BYTES {
            return None;
        }
        pool.kept.set(KeptBytes { used, held });
        allocation.kept_bytes.set(allocation.kept_bytes.get() + buffer.len());
        Some(Self(buffer.clone()))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        let memory = self.0.as_ptr().expect("no phantom is kept");
        // SAFETY: in bounds and initialised, as in `Buffer::with`. The allocation was frozen while nobody had access to it, and is
        // as long as this view of it is there: no reference to change it by is given out.
        unsafe { std::slice::from_raw_parts(memory.as_ptr(), self.0.len()) }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(allocation) = &self.0.allocation else { return };
        let left = allocation.kept_bytes.get() - self.0.len();
        allocation.kept_bytes.set(left);
        let Some(pool) = allocation.pool.as_ref().and_then(Weak::upgrade) else { return };
        let KeptBytes { used, held } = pool.kept.get();
        let given_back = if left == 0 { allocation.capacity_bytes } else { 0 };
        pool.kept.set(KeptBytes { used: used - self.0.len(), held: held - given_back });
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

    /// Used and held.
    fn kept_of(pool: &BufferPool) -> (usize, usize) {
        let KeptBytes { used, held } = pool.shared.kept.get();
        (used, held)
    }

    #[test]
    fn only_what_is_frozen_and_goes_back_to_a_pool_is_kept() {
        let pool = BufferPool::new(MIB);
        assert!(Kept::of(&pool.allocate(MIB)).is_none(), "it may change");
        assert!(Kept::of(&frozen(&pool, MIB)).is_some());
        assert!(Kept::of(&frozen(&pool, 8 * MIB)).is_none(), "pools keep nothing so large");
        assert!(Kept::of(&Buffer::phantom(MIB)).is_none());
    }

    #[test]
    fn what_is_held_for_small_pieces_is_bounded() {
        let pool = BufferPool::new(0);
        let whole: Vec<Kept> = (0..64).filter_map(|_| Kept::of(&frozen(&pool, MIB))).collect();
        assert_eq!(whole.len(), 64, "all of each is of use");
        let piece = MIB / 16;
        let pieces: Vec<Kept> =
            (0..200).filter_map(|_| Kept::of(&frozen(&pool, MIB).slice(0..piece))).collect();
        let (used, held) = kept_of(&pool);
        assert_eq!((used, held), (64 * MIB + pieces.len() * piece, (64 + pieces.len()) * MIB));
        assert!(pieces.len() >= 48, "{} in a quarter of 64 MiB and in the slack", pieces.len());
        assert!(held <= used + used / 4 + SLACK_BYTES);
        drop(pieces);
        assert_eq!(kept_of(&pool), (64 * MIB, 64 * MIB));
        drop(whole);
        assert_eq!(kept_of(&pool), (0, 0));
    }

    #[test]
    fn two_drives_may_keep_the_same_and_outlive_the_pool() {
        let pool = BufferPool::new(MIB);
        let buffer = frozen(&pool, MIB);
        let kept = [Kept::of(&buffer), Kept::of(&buffer)];
        assert_eq!(kept_of(&pool), (2 * MIB, MIB));
        drop((buffer, pool));
        assert!(kept.into_iter().flatten().all(|kept| kept.bytes().iter().all(|&byte| byte == 0)));
    }
}
