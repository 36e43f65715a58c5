//! Memory on its way to another thread. Views are counted without atomics, so a buffer stays on its
//! thread; its memory can leave, as long as no other view of it is left behind.
//!
//! Expected fault: other views exist, such as those of a request in the kernel or of a drive that
//! keeps the memory. Then the bytes are copied.

use std::rc::{Rc, Weak};

use super::{Allocation, Buffer, BufferPool};

/// Longest memory that is exchanged, bytes; longer allocations are not reused.
const LONGEST_SPARE_BYTES: usize = 4 << 20;

/// The memory of a buffer that has no other view. It belongs to no pool until it is
/// [adopted](BufferPool::adopt).
pub struct MovedBuffer {
    /// `None` for a phantom.
    allocation: Option<Allocation>,
    start: usize,
    length: usize,
}

// SAFETY: the allocation is owned, not shared: `Buffer::into_moved` takes it out of its only view,
// and a drive or the kernel that still used it would have a view. Its cells and its memory are
// reached through this owner alone, and its link to a pool is one that points nowhere.
unsafe impl Send for MovedBuffer {}

impl Buffer {
    /// Detaches the memory from this thread: without a copy if this is its only view.
    pub fn into_moved(mut self) -> MovedBuffer {
        let (start, length) = (self.start, self.length);
        let Some(allocation) = self.allocation.take() else {
            return MovedBuffer { allocation: None, start, length };
        };
        match Rc::try_unwrap(allocation) {
            Ok(mut allocation) => {
                assert!(!allocation.kept.get().has_pieces(), "a kept piece is a view");
                allocation.pool = allocation.pool.as_ref().map(|_| Weak::new());
                MovedBuffer { allocation: Some(allocation), start, length }
            }
            Err(shared) => {
                let view = Self { allocation: Some(shared), start, length };
                let copy = BufferPool::new(0).allocate(length);
                copy.copy_from(&view);
                copy.into_moved()
            }
        }
    }
}

impl BufferPool {
    /// A buffer with memory from another thread. Once its last view is dropped, the memory goes to
    /// this pool.
    pub fn adopt(&self, moved: MovedBuffer) -> Buffer {
        let MovedBuffer { allocation, start, length } = moved;
        let allocation = allocation.map(|mut allocation| {
            allocation.pool = allocation.pool.as_ref().map(|_| Rc::downgrade(&self.shared));
            Rc::new(allocation)
        });
        Buffer { allocation, start, length }
    }

    /// Memory in exchange for as much that moves in the other direction, so that the pools of both
    /// threads stay full. `None` if it would not be reused.
    pub fn spare(&self, length: usize) -> Option<MovedBuffer> {
        (1..=LONGEST_SPARE_BYTES).contains(&length).then(|| self.allocate(length).into_moved())
    }

    /// Keeps memory from another thread for later allocations.
    pub fn keep_spare(&self, spare: Option<MovedBuffer>) {
        drop(spare.map(|spare| self.adopt(spare)));
    }
}

impl MovedBuffer {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// True if the length is zero.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_another_thread(moved: MovedBuffer, change: fn(&Buffer)) -> MovedBuffer {
        let work = move || {
            let buffer = BufferPool::new(1 << 20).adopt(moved);
            change(&buffer);
            buffer.into_moved()
        };
        std::thread::spawn(work).join().expect("no panic")
    }

    #[test]
    fn a_sole_view_moves_without_a_copy() {
        let pool = BufferPool::new(1 << 20);
        let buffer = pool.allocate(8192);
        let view = buffer.slice(4096..8192);
        drop(buffer);
        let address = view.as_ptr();
        let back = pool.adopt(on_another_thread(view.into_moved(), |view| view.fill(7)));
        assert_eq!((back.as_ptr(), back.to_vec()), (address, vec![7; 4096]));
        drop(back);
        assert_eq!(pool.shared.retained_bytes.get(), 8192, "its pool has it again");
    }

    #[test]
    fn memory_with_another_view_is_copied() {
        let pool = BufferPool::new(1 << 20);
        let buffer = pool.allocate_zeroed(4096);
        let moved = buffer.slice(0..4096).into_moved();
        let back = pool.adopt(on_another_thread(moved, |copy| copy.fill(7)));
        assert_eq!((back.to_vec(), buffer.to_vec()), (vec![7; 4096], vec![0; 4096]));
        back.freeze();
        assert_eq!(pool.adopt(back.into_moved()).to_vec(), [7; 4096], "frozen memory moves, too");
    }

    #[test]
    fn spare_memory_is_kept_by_the_other_pool() {
        let (pool, other) = (BufferPool::new(1 << 20), BufferPool::new(1 << 20));
        assert!(pool.spare(0).is_none() && pool.spare(LONGEST_SPARE_BYTES + 1).is_none());
        other.keep_spare(pool.spare(8192));
        assert_eq!((pool.shared.retained_bytes.get(), other.shared.retained_bytes.get()), (0, 8192));
        other.keep_spare(None);
    }

    #[test]
    fn phantoms_and_long_buffers_move() {
        let pool = BufferPool::new(1 << 20);
        let phantom = pool.adopt(on_another_thread(Buffer::phantom(1 << 40).into_moved(), |_| {}));
        assert!(phantom.is_phantom() && phantom.len() == 1 << 40);
        let long = pool.adopt(on_another_thread(pool.allocate(8 << 20).into_moved(), |long| long.fill(1)));
        assert_eq!(long.with(|bytes| bytes.iter().all(|byte| *byte == 1)), Some(true));
    }
}
