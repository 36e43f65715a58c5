//! Aligned pooled buffers, and *phantoms*: buffers with a length but no bytes.
//!
//! A [`Buffer`] is a cheap reference-counted view of a part of one allocation, like `bytes::Bytes`,
//! but writable. Views may overlap. A protocol, not the types, orders access: a view passed to a
//! drive belongs to the drive until the request completes. Rust code reaches the bytes through
//! closures ([`access`], [`Buffer::with`], [`Buffer::with_mut`]) that cannot nest and that check
//! for overlap, so a mutable reference to a byte is always the only one. Accesses to a phantom are
//! no-ops, so performance models move terabytes without memory, and the engine behaves
//! the same.
//!
//! A memory drive may keep frozen memory ([`Buffer::freeze`]) instead of a copy ([`kept`]). Memory
//! moves to another thread as a [`MovedBuffer`].

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::ptr::NonNull;
use std::rc::{Rc, Weak};

pub(crate) mod kept;
mod moved;

use kept::{KeptBytes, KeptPieces};
pub use moved::MovedBuffer;

/// Alignment of every allocation in bytes, as O_DIRECT requires.
pub const BUFFER_ALIGNMENT: usize = 4096;

/// Size classes for reuse are powers of two, from 4 KiB to 4 MiB.
const SMALLEST_CLASS_LOG2: u32 = 12;
const CLASSES: usize = 11;

struct Allocation {
    memory: NonNull<u8>,
    capacity_bytes: usize,
    /// True until the memory is allocated again.
    frozen: Cell<bool>,
    /// Pieces that drives keep.
    kept: Cell<KeptPieces>,
    /// `None`: freed with the last view, not reused.
    pool: Option<Weak<PoolShared>>,
}

/// Minimum length of an allocation that is mapped from the system: its pages take memory only once
/// they are touched, and all of it is returned when it is freed. Shorter ones use the heap.
const FROM_SYSTEM_BYTES: usize = 1 << 20;

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.capacity_bytes >= FROM_SYSTEM_BYTES {
            // SAFETY: `memory` was mapped with this length and is unmapped once, here; no view of
            // it is left.
            unsafe { libc::munmap(self.memory.as_ptr().cast(), self.capacity_bytes) };
            return;
        }
        let layout =
            Layout::from_size_align(self.capacity_bytes, BUFFER_ALIGNMENT).expect("was valid when allocated");
        // SAFETY: `memory` came from `alloc_zeroed` with this same layout and is freed once, here.
        unsafe { dealloc(self.memory.as_ptr(), layout) }
    }
}

impl Allocation {
    fn new(capacity_bytes: usize, pool: Option<Weak<PoolShared>>) -> Self {
        let layout =
            Layout::from_size_align(capacity_bytes, BUFFER_ALIGNMENT).expect("a buffer below isize::MAX");
        if capacity_bytes >= FROM_SYSTEM_BYTES {
            let memory = map_zeroes(capacity_bytes).unwrap_or_else(|| handle_alloc_error(layout));
            return Self { memory, capacity_bytes, frozen: Cell::new(false), kept: Cell::default(), pool };
        }
        // SAFETY: the layout's size is not zero (callers round up to at least one alignment unit).
        let memory = unsafe { alloc_zeroed(layout) };
        let Some(memory) = NonNull::new(memory) else { handle_alloc_error(layout) };
        Self { memory, capacity_bytes, frozen: Cell::new(false), kept: Cell::default(), pool }
    }
}

/// Maps zeroed pages. They are aligned to [`BUFFER_ALIGNMENT`], as a page is at least as large.
fn map_zeroes(length_bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: a new private mapping without a file overlaps no other memory; the result is checked
    // before use.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length_bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    (memory != libc::MAP_FAILED).then(|| NonNull::new(memory.cast())).flatten()
}

struct PoolShared {
    free: RefCell<[Vec<Rc<Allocation>>; CLASSES]>,
    retained_bytes: Cell<usize>,
    retain_limit_bytes: usize,
    kept: Cell<KeptBytes>,
}

/// Allocates aligned buffers and keeps returned ones for reuse, up to a limit in bytes.
#[derive(Clone)]
pub struct BufferPool {
    shared: Rc<PoolShared>,
    phantom: bool,
}

impl BufferPool {
    /// Creates a pool that keeps at most `retain_limit_bytes` of returned memory. Request
    /// admission, not the pool, bounds the memory in use.
    pub fn new(retain_limit_bytes: usize) -> Self {
        let shared = PoolShared {
            free: RefCell::new(std::array::from_fn(|_| Vec::new())),
            retained_bytes: Cell::new(0),
            retain_limit_bytes,
            kept: Cell::default(),
        };
        Self { shared: Rc::new(shared), phantom: false }
    }

    /// Creates a pool of phantoms only: for performance models, where contents do not matter.
    pub fn phantom() -> Self {
        Self { phantom: true, ..Self::new(0) }
    }

    /// True if this pool allocates phantoms.
    pub fn is_phantom(&self) -> bool {
        self.phantom
    }

    /// Allocates a buffer of `length_bytes` with arbitrary contents.
    pub fn allocate(&self, length_bytes: usize) -> Buffer {
        if self.phantom {
            return Buffer::phantom(length_bytes);
        }
        let rounded = length_bytes.max(1).next_power_of_two().max(1 << SMALLEST_CLASS_LOG2);
        let class = (rounded.trailing_zeros() - SMALLEST_CLASS_LOG2) as usize;
        if class >= CLASSES {
            let capacity = length_bytes.next_multiple_of(BUFFER_ALIGNMENT);
            return Buffer::of(Rc::new(Allocation::new(capacity, None)), length_bytes);
        }
        let reused = self.shared.free.borrow_mut()[class].pop();
        let allocation = match reused {
            Some(allocation) => {
                self.shared.retained_bytes.set(self.shared.retained_bytes.get() - rounded);
                allocation.frozen.set(false);
                allocation
            }
            None => Rc::new(Allocation::new(rounded, Some(Rc::downgrade(&self.shared)))),
        };
        Buffer::of(allocation, length_bytes)
    }

    /// Allocates a buffer of `length_bytes` zero bytes.
    pub fn allocate_zeroed(&self, length_bytes: usize) -> Buffer {
        let buffer = self.allocate(length_bytes);
        buffer.fill(0);
        buffer
    }
}

/// A view of bytes in a pooled allocation, or a phantom. Cloning and slicing share the memory.
pub struct Buffer {
    /// `None` only for phantoms and while dropping.
    allocation: Option<Rc<Allocation>>,
    /// Offset into the allocation in bytes. A phantom has a tag here instead; a slice's tag is
    /// offset in the same way.
    start: usize,
    length: usize,
}

impl Buffer {
    fn of(allocation: Rc<Allocation>, length: usize) -> Self {
        Self { allocation: Some(allocation), start: 0, length }
    }

    /// Creates a buffer of a length without bytes.
    pub fn phantom(length_bytes: usize) -> Self {
        Self { allocation: None, start: 0, length: length_bytes }
    }

    /// Creates a buffer outside any pool with a copy of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let capacity = bytes.len().max(1).next_multiple_of(BUFFER_ALIGNMENT);
        let buffer = Self::of(Rc::new(Allocation::new(capacity, None)), bytes.len());
        buffer.with_mut(|to| to.copy_from_slice(bytes));
        buffer
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// True if the length is zero.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// True if there are no bytes behind this buffer.
    pub fn is_phantom(&self) -> bool {
        self.allocation.is_none()
    }

    /// Returns a view of `range` (bytes, relative to this view) of the same memory. Panics if it is
    /// out of bounds.
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(
            range.start <= range.end && range.end <= self.length,
            "slice {range:?} of {} bytes",
            self.length
        );
        Self {
            allocation: self.allocation.clone(),
            start: self.start + range.start,
            length: range.end - range.start,
        }
    }

    /// Address of the first byte, for executors that pass it to the kernel. `None` for phantoms.
    /// The memory lives as long as any view of it.
    pub fn as_ptr(&self) -> Option<NonNull<u8>> {
        let allocation = self.allocation.as_ref()?;
        // SAFETY: `start` is within the allocation: `of` and `slice` keep
        // `start + length <= capacity_bytes`.
        Some(unsafe { allocation.memory.add(self.start) })
    }

    /// True if the memory of `next` directly follows this view, so that both can be one I/O
    /// segment.
    pub fn is_followed_by(&self, next: &Self) -> bool {
        match (&self.allocation, &next.allocation) {
            (Some(a), Some(b)) => Rc::ptr_eq(a, b) && self.start + self.length == next.start,
            (None, None) => true,
            _ => false,
        }
    }

    /// Returns this view extended by the adjacent view `next`. Panics unless
    /// [`Self::is_followed_by`].
    pub fn joined_with(&self, next: &Self) -> Self {
        assert!(self.is_followed_by(next), "joined views must be adjacent");
        Self { allocation: self.allocation.clone(), start: self.start, length: self.length + next.length }
    }

    /// Calls `f` with the bytes; not called for phantoms (returns `None`).
    pub fn with<T>(&self, f: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let memory = self.as_ptr()?;
        let _guard = AccessGuard::enter();
        // SAFETY: in bounds and initialised (allocations are zeroed). The guard excludes any other
        // Rust reference, and by protocol no drive writes to a view that was not passed to it.
        Some(f(unsafe { std::slice::from_raw_parts(memory.as_ptr(), self.length) }))
    }

    /// Calls `f` with the mutable bytes; not called for phantoms (returns `None`).
    pub fn with_mut<T>(&self, f: impl FnOnce(&mut [u8]) -> T) -> Option<T> {
        let memory = self.as_ptr()?;
        self.assert_not_frozen();
        let _guard = AccessGuard::enter();
        // SAFETY: as in `with`; the guard makes this the only Rust reference to the bytes.
        Some(f(unsafe { std::slice::from_raw_parts_mut(memory.as_ptr(), self.length) }))
    }

    /// Makes the whole allocation immutable, through any view, until its last view is dropped. A
    /// drive may keep it instead of a copy. An attempt to change it panics.
    pub fn freeze(&self) {
        let _guard = AccessGuard::enter();
        if let Some(allocation) = &self.allocation {
            allocation.frozen.set(true);
        }
    }

    /// True if [`Self::freeze`] was called on the allocation.
    pub(crate) fn is_frozen(&self) -> bool {
        self.allocation.as_ref().is_some_and(|allocation| allocation.frozen.get())
    }

    fn assert_not_frozen(&self) {
        assert!(!self.is_frozen(), "a frozen buffer is immutable");
    }

    /// Sets every byte to `value`.
    pub fn fill(&self, value: u8) {
        self.with_mut(|bytes| bytes.fill(value));
    }

    /// Copies the bytes of `from`, which has the same length. Overlap is allowed.
    pub fn copy_from(&self, from: &Self) {
        assert_eq!(self.length, from.length, "a copy requires equal lengths");
        let (Some(to), Some(from)) = (self.as_ptr(), from.as_ptr()) else { return };
        self.assert_not_frozen();
        let _guard = AccessGuard::enter();
        // SAFETY: both in bounds for `length`; `copy` allows overlap; the guard excludes Rust
        // references.
        unsafe { std::ptr::copy(from.as_ptr(), to.as_ptr(), self.length) }
    }

    /// Copies the bytes out; zeros for a phantom.
    pub fn to_vec(&self) -> Vec<u8> {
        self.with(<[u8]>::to_vec).unwrap_or_else(|| vec![0; self.length])
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        Self { allocation: self.allocation.clone(), start: self.start, length: self.length }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Some(allocation) = self.allocation.take() else { return };
        if Rc::strong_count(&allocation) > 1 {
            return;
        }
        let Some(pool) = allocation.pool.as_ref().and_then(Weak::upgrade) else { return };
        let bytes = allocation.capacity_bytes;
        if pool.retained_bytes.get() + bytes <= pool.retain_limit_bytes {
            pool.retained_bytes.set(pool.retained_bytes.get() + bytes);
            pool.free.borrow_mut()[(bytes.trailing_zeros() - SMALLEST_CLASS_LOG2) as usize].push(allocation);
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes{})", self.length, if self.is_phantom() { ", phantom" } else { "" })
    }
}

thread_local! {
    static IN_ACCESS: Cell<bool> = const { Cell::new(false) };
}

/// Admits one closure at a time on this thread to buffer memory; buffers never leave their thread
/// (`Rc`).
struct AccessGuard;

impl AccessGuard {
    fn enter() -> Self {
        assert!(!IN_ACCESS.replace(true), "buffer accesses must not nest");
        Self
    }
}

impl Drop for AccessGuard {
    fn drop(&mut self) {
        IN_ACCESS.set(false);
    }
}

/// Calls `f` with the bytes of `sources` (read) and of `destinations` (written), for parity
/// arithmetic. Does not call `f` if any buffer is a phantom. Panics if a destination overlaps
/// another buffer: that is a bug in the caller.
pub fn access(sources: &[&Buffer], destinations: &[&Buffer], f: impl FnOnce(&[&[u8]], &mut [&mut [u8]])) {
    if sources.iter().chain(destinations).any(|buffer| buffer.is_phantom()) {
        return;
    }
    destinations.iter().for_each(|destination| destination.assert_not_frozen());
    let _guard = AccessGuard::enter();
    let address = |buffer: &Buffer| buffer.as_ptr().expect("not a phantom").as_ptr() as usize;
    let overlap =
        |a: &Buffer, b: &Buffer| address(a) < address(b) + b.len() && address(b) < address(a) + a.len();
    for (index, destination) in destinations.iter().enumerate() {
        let clash = sources.iter().chain(&destinations[..index]).any(|other| overlap(destination, other));
        assert!(!clash, "a destination of buffer arithmetic overlaps another buffer");
    }
    let sources: smallvec::SmallVec<[&[u8]; 16]> = sources
        .iter()
        // SAFETY: in bounds and initialised; destinations were checked not to overlap; the guard
        // excludes other accesses.
        .map(|b| unsafe { std::slice::from_raw_parts(address(b) as *const u8, b.len()) })
        .collect();
    let mut destinations: smallvec::SmallVec<[&mut [u8]; 4]> = destinations
        .iter()
        // SAFETY: as above, and destinations do not overlap one another, so each `&mut` is the only
        // reference.
        .map(|b| unsafe { std::slice::from_raw_parts_mut(address(b) as *mut u8, b.len()) })
        .collect();
    f(&sources, &mut destinations);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_returns_to_the_pool_and_is_reused() {
        let pool = BufferPool::new(1 << 20);
        let first = pool.allocate(10_000);
        let address = first.as_ptr();
        let view = first.slice(100..200);
        drop(first);
        assert_eq!(pool.shared.retained_bytes.get(), 0, "a view still holds it");
        drop(view);
        assert_eq!(pool.shared.retained_bytes.get(), 16_384);
        assert_eq!(pool.allocate(16_000).as_ptr(), address);
    }

    /// Resident memory of this process, bytes.
    fn resident_bytes() -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").expect("readable");
        text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number") * 4096
    }

    #[test]
    fn long_buffers_use_memory_only_while_filled() {
        const LONG: usize = 256 << 20;
        let (pool, before) = (BufferPool::new(0), resident_bytes());
        let buffers: Vec<_> = (0..8).map(|_| pool.allocate(LONG / 8)).collect();
        assert!(resident_bytes() < before + LONG / 4, "memory that nothing was written to");
        buffers.iter().for_each(|buffer| buffer.fill(7));
        assert!(resident_bytes() > before + LONG / 2);
        drop(buffers);
        assert!(resident_bytes() < before + LONG / 4, "memory that is not used");
    }

    #[test]
    fn the_pool_keeps_no_more_than_its_limit() {
        let pool = BufferPool::new(8192);
        let buffers: Vec<_> = (0..8).map(|_| pool.allocate(4096)).collect();
        drop(buffers);
        assert_eq!(pool.shared.retained_bytes.get(), 8192);
    }

    #[test]
    fn frozen_memory_is_writable_for_its_next_owner() {
        let pool = BufferPool::new(1 << 20);
        let first = pool.allocate(4096);
        let address = first.as_ptr();
        first.freeze();
        drop(first);
        let next = pool.allocate(4096);
        assert_eq!(next.as_ptr(), address);
        next.fill(1);
    }

    #[test]
    fn frozen_buffer_is_immutable_through_any_view() {
        let buffer = BufferPool::new(0).allocate(8192);
        let (first, second) = (buffer.slice(0..4096), buffer.slice(4096..8192));
        first.freeze();
        let changes: [&dyn Fn(); 4] = [
            &|| second.fill(1),
            &|| second.copy_from(&Buffer::from_bytes(&[0; 4096])),
            &|| assert!(buffer.with_mut(|_| {}).is_some()),
            &|| access(&[], &[&second], |_, _| {}),
        ];
        for change in changes {
            let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(change));
            assert!(changed.is_err());
        }
    }

    #[test]
    #[should_panic(expected = "overlaps")]
    fn arithmetic_on_overlapping_buffers_is_refused() {
        let buffer = BufferPool::new(0).allocate(8192);
        access(&[&buffer.slice(0..4096)], &[&buffer.slice(4095..8000)], |_, _| {});
    }

    #[test]
    #[should_panic(expected = "nest")]
    fn nested_access_is_refused() {
        let buffer = BufferPool::new(0).allocate(4096);
        buffer.with(|_| buffer.with_mut(|_| {}));
    }

    #[test]
    fn phantoms_are_never_touched() {
        let pool = BufferPool::phantom();
        let huge = pool.allocate(1 << 40);
        assert_eq!(huge.slice(1 << 30..1 << 31).len(), 1 << 30);
        access(&[&huge], &[&Buffer::from_bytes(b"x")], |_, _| panic!("called with a phantom"));
        huge.with_mut(|_| panic!("called with a phantom"));
    }
}
