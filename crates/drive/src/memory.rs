//! A drive in this process's memory: sparse, and every request is answered before `submit` returns.
//!
//! Space is taken in chunks when first written; what was never written reads as zeros. Phantom buffers pass through
//! without touching contents, so that the same drive under a model keeps the real metadata of an array whose data are
//! phantoms. Expects no faults of its own: the only errors are requests outside the drive or off its blocks.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use crate::buffer::Buffer;
use crate::completion::Completion;
use crate::request::{Drive, DriveInfo, DriveKind, IoRequest, Operation};

/// Bytes taken at once. Small enough for sparse images, large enough that the table of chunks stays in the cache.
const CHUNK_BYTES: usize = 256 << 10;

/// Where chunks begin in memory. Buffers begin so too, and there are processors (an AMD EPYC; `rep movsb`) that copy at half the rate
/// where the destination begins a few bytes further into its page than the source: 64 KiB at 8.2 instead of 16.1 GB/s.
const CHUNK_ALIGNMENT: usize = 4096;

/// Zeros when new, which cost no memory until they are written: so the room for aligning it is part of an ordinary allocation.
struct Chunk {
    memory: Box<[u8]>,
    start: usize,
}

impl Chunk {
    fn new() -> Box<Self> {
        let memory = vec![0; CHUNK_BYTES + CHUNK_ALIGNMENT].into_boxed_slice();
        let start = memory.as_ptr().addr().wrapping_neg() % CHUNK_ALIGNMENT;
        Box::new(Self { memory, start })
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + CHUNK_BYTES]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + CHUNK_BYTES]
    }
}

impl Clone for Chunk {
    fn clone(&self) -> Self {
        let mut copy = *Self::new();
        copy.bytes_mut().copy_from_slice(self.bytes());
        copy
    }
}

/// The contents of a memory drive: a flat table of chunks, so that finding a byte is one shift and one load.
pub(crate) struct Chunks {
    table: Box<[Option<Box<Chunk>>]>,
}

impl Chunks {
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        let count =
            usize::try_from(capacity_bytes.div_ceil(CHUNK_BYTES as u64)).expect("a table that fits memory");
        // Zeroed by the system page by page when touched: a table for a drive of terabytes costs what is used of it.
        let table = Box::<[Option<Box<Chunk>>]>::new_zeroed_slice(count);
        // SAFETY: `None` of an optional box is guaranteed to be all zero bytes.
        Self { table: unsafe { table.assume_init() } }
    }

    fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let end = offset + length as u64;
        let mut at = offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let within = (at % CHUNK_BYTES as u64) as usize;
            let take = (CHUNK_BYTES - within).min((end - at) as usize);
            let index = (at / CHUNK_BYTES as u64) as usize;
            at += take as u64;
            Some((index, within..within + take))
        })
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) {
        let mut done = 0;
        for (index, range) in Self::pieces(offset, into.len()) {
            let to = &mut into[done..done + range.len()];
            done += range.len();
            match &self.table[index] {
                Some(chunk) => to.copy_from_slice(&chunk.bytes()[range]),
                None => to.fill(0),
            }
        }
    }

    pub(crate) fn write(&mut self, offset: u64, from: &[u8]) {
        let mut done = 0;
        for (index, range) in Self::pieces(offset, from.len()) {
            let source = &from[done..done + range.len()];
            done += range.len();
            let chunk = self.table[index].get_or_insert_with(Chunk::new);
            chunk.bytes_mut()[range].copy_from_slice(source);
        }
    }

    pub(crate) fn zero(&mut self, offset: u64, length: u64) {
        for (index, range) in Self::pieces(offset, length as usize) {
            if range.len() == CHUNK_BYTES {
                self.table[index] = None;
            } else if let Some(chunk) = &mut self.table[index] {
                chunk.bytes_mut()[range].fill(0);
            }
        }
    }

    fn allocated_bytes(&self) -> u64 {
        self.table.iter().flatten().count() as u64 * CHUNK_BYTES as u64
    }

    pub(crate) fn copy(&self) -> Self {
        Self { table: self.table.clone() }
    }
}

/// A sparse drive in memory that answers at once.
pub struct MemoryDrive {
    info: DriveInfo,
    chunks: RefCell<Chunks>,
}

impl MemoryDrive {
    /// A drive of `capacity_bytes` (a multiple of 512) that reads as zeros, with blocks of 512 bytes.
    pub fn new(label: &str, capacity_bytes: u64) -> Rc<Self> {
        Self::with_block(label, capacity_bytes, 512)
    }

    /// As [`Self::new`] with blocks of 512 or 4096 bytes, of which `capacity_bytes` must be a multiple.
    pub fn with_block(label: &str, capacity_bytes: u64, logical_block_bytes: u32) -> Rc<Self> {
        let chunks = Chunks::new(capacity_bytes);
        Rc::new(Self::of(memory_info(label, capacity_bytes, logical_block_bytes), chunks))
    }

    pub(crate) fn of(info: DriveInfo, chunks: Chunks) -> Self {
        Self { info, chunks: RefCell::new(chunks) }
    }

    /// Bytes of memory its contents take.
    pub fn allocated_bytes(&self) -> u64 {
        self.chunks.borrow().allocated_bytes()
    }

    /// Copies contents from `offset_bytes` on, past the queue and its checks: for tests and tools. Panics beyond the end.
    pub fn peek(&self, offset_bytes: u64, into: &mut [u8]) {
        assert!(offset_bytes + into.len() as u64 <= self.info.capacity_bytes, "peek beyond the drive's end");
        self.chunks.borrow().read(offset_bytes, into);
    }

    /// Changes contents from `offset_bytes` on, past the queue and its checks: for tests and tools. Panics beyond the
    /// end.
    pub fn poke(&self, offset_bytes: u64, from: &[u8]) {
        assert!(offset_bytes + from.len() as u64 <= self.info.capacity_bytes, "poke beyond the drive's end");
        self.chunks.borrow_mut().write(offset_bytes, from);
    }

    pub(crate) fn copy_of_contents(&self) -> Chunks {
        self.chunks.borrow().copy()
    }

    /// Another drive of the same contents.
    pub fn duplicate(&self, label: &str) -> Rc<Self> {
        let info = DriveInfo { label: label.into(), ..self.info.clone() };
        Rc::new(Self::of(info, self.copy_of_contents()))
    }
}

/// What a drive in memory says of itself.
pub(crate) fn memory_info(label: &str, capacity_bytes: u64, logical_block_bytes: u32) -> DriveInfo {
    assert!(matches!(logical_block_bytes, 512 | 4096), "blocks are of 512 or 4096 bytes");
    assert!(capacity_bytes.is_multiple_of(u64::from(logical_block_bytes)), "capacity is whole blocks");
    DriveInfo {
        label: label.into(),
        kind: DriveKind::Memory,
        capacity_bytes,
        logical_block_bytes,
        queue_depth: 64,
        queue_bytes: 16 << 20,
        max_request_bytes: 4 << 20,
        volatile_cache: false,
        cheap_zeroes: true,
        gap_bytes: 0,
    }
}

/// Calls `each` with every segment that has bytes, and where on the drive it belongs.
pub(crate) fn for_each_segment(request: &IoRequest, mut each: impl FnMut(u64, &Buffer)) {
    let mut at = request.offset_bytes;
    for segment in &request.segments {
        each(at, segment);
        at += segment.len() as u64;
    }
}

impl Drive for MemoryDrive {
    fn info(&self) -> &DriveInfo {
        &self.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        if let Err(error) = request.check(&self.info) {
            return Completion::ready(Err(error));
        }
        match request.operation {
            Operation::Read => {
                let chunks = self.chunks.borrow();
                for_each_segment(&request, |at, segment| {
                    segment.with_mut(|bytes| chunks.read(at, bytes));
                });
            }
            Operation::Write { .. } => {
                let mut chunks = self.chunks.borrow_mut();
                for_each_segment(&request, |at, segment| {
                    segment.with(|bytes| chunks.write(at, bytes));
                });
            }
            Operation::Flush => {}
            Operation::Discard | Operation::WriteZeroes => {
                self.chunks.borrow_mut().zero(request.offset_bytes, request.length_bytes);
            }
        }
        Completion::ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{DriveErrorKind, IoResult};

    fn now(completion: Completion) -> IoResult {
        completion.try_take().unwrap_or_else(|_| panic!("memory answers at once"))
    }

    fn pattern(length: usize, seed: usize) -> Vec<u8> {
        (0..length).map(|index| (index * 31 + seed * 7 + index / 251) as u8).collect()
    }

    #[test]
    fn what_was_written_is_read_back_across_chunks_and_segments() {
        let drive = MemoryDrive::new("m", 4 << 20);
        let start = CHUNK_BYTES as u64 - 1024;
        let (first, second) = (pattern(1536, 1), pattern(CHUNK_BYTES + 512, 2));
        let segments = [Buffer::from_bytes(&first), Buffer::from_bytes(&second)];
        let write = Operation::Write { fua: false };
        now(drive.submit(IoRequest::with_segments(write, start, segments.into_iter().collect()))).unwrap();
        let buffer = Buffer::from_bytes(&vec![1; first.len() + second.len() + 1024]);
        now(drive.submit(IoRequest::read(start - 512, buffer.clone()))).unwrap();
        let mut expected = vec![0; 512];
        expected.extend(first);
        expected.extend(second);
        expected.extend([0; 512]);
        assert_eq!(buffer.to_vec(), expected);
        assert_eq!(drive.allocated_bytes(), 3 * CHUNK_BYTES as u64);
    }

    #[test]
    fn zeroing_gives_whole_chunks_back() {
        let drive = MemoryDrive::new("m", 4 << 20);
        drive.poke(0, &vec![7; 3 * CHUNK_BYTES]);
        let range = IoRequest::range(Operation::WriteZeroes, 512, 2 * CHUNK_BYTES as u64);
        now(drive.submit(range)).unwrap();
        assert_eq!(drive.allocated_bytes(), 2 * CHUNK_BYTES as u64);
        let mut contents = vec![9; 3 * CHUNK_BYTES];
        drive.peek(0, &mut contents);
        assert!(contents[..512].iter().all(|&byte| byte == 7));
        assert!(contents[512..512 + 2 * CHUNK_BYTES].iter().all(|&byte| byte == 0));
        assert!(contents[512 + 2 * CHUNK_BYTES..].iter().all(|&byte| byte == 7));
    }

    #[test]
    fn phantoms_leave_contents_alone() {
        let drive = MemoryDrive::new("m", 1 << 40);
        drive.poke(4096, b"kept");
        now(drive.submit(IoRequest::write(0, Buffer::phantom(1 << 30), false))).unwrap();
        now(drive.submit(IoRequest::read(0, Buffer::phantom(1 << 30)))).unwrap();
        let mut contents = [0; 4];
        drive.peek(4096, &mut contents);
        assert_eq!(&contents, b"kept");
        assert_eq!(drive.allocated_bytes(), CHUNK_BYTES as u64);
    }

    #[test]
    fn requests_outside_or_off_its_blocks_are_refused() {
        let drive = MemoryDrive::with_block("m", 1 << 20, 4096);
        let kind = |request| now(drive.submit(request)).unwrap_err().kind;
        let buffer = Buffer::from_bytes(&[0; 8192]);
        assert_eq!(kind(IoRequest::read((1 << 20) - 4096, buffer.clone())), DriveErrorKind::OutOfRange);
        assert_eq!(kind(IoRequest::read(u64::MAX - 4095, buffer.clone())), DriveErrorKind::OutOfRange);
        assert_eq!(kind(IoRequest::read(512, buffer.clone())), DriveErrorKind::Misaligned);
        assert_eq!(kind(IoRequest::write(0, buffer.slice(0..512), false)), DriveErrorKind::Misaligned);
    }

    #[test]
    fn chunks_begin_on_a_page_copies_of_them_too() {
        let chunks = [Chunk::new(), Chunk::new()];
        for chunk in chunks.iter().chain(&chunks.clone()) {
            assert!(chunk.bytes().as_ptr().addr().is_multiple_of(CHUNK_ALIGNMENT));
            assert_eq!(chunk.bytes().len(), CHUNK_BYTES);
        }
    }

    #[test]
    fn a_duplicate_is_independent() {
        let drive = MemoryDrive::new("m", 1 << 20);
        drive.poke(0, b"one");
        let copy = drive.duplicate("n");
        drive.poke(0, b"two");
        let mut contents = [0; 3];
        copy.peek(0, &mut contents);
        assert_eq!(&contents, b"one");
    }
}
