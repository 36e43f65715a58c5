//! A sparse drive in memory that answers every request before `submit` returns.
//!
//! Space is allocated in chunks on the first write; unwritten ranges read as zeros. Long frozen
//! pieces ([`Buffer::freeze`]) are kept without a copy, and copied when a part of them is
//! overwritten while other views exist. Phantom buffers do not touch contents, so under a model the
//! same drive keeps the real metadata of an array with phantom data. Expected faults: only requests
//! outside the drive or off its blocks.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use crate::buffer::Buffer;
use crate::buffer::kept::{self, Kept};
use crate::completion::Completion;
use crate::operation::Operation;
use crate::request::{Drive, DriveInfo, DriveKind, IoRequest};

/// Allocation unit, and unit of long writes that are kept without a copy: the usual strip size.
const CHUNK_BYTES: usize = kept::PIECE_BYTES;

/// Chunks per table entry, so that the table of a terabyte drive is small.
const GROUP_CHUNKS: usize = 64;

/// Alignment of chunks in memory, the same as of buffers. Some processors (an AMD EPYC; `rep
/// movsb`) copy at half the rate if the destination begins a few bytes further into its page than
/// the source: 64 KiB at 8.2 instead of 16.1 GB/s.
const CHUNK_ALIGNMENT: usize = 4096;

/// The drive's own memory for a chunk. New memory is zero and takes no pages until it is written,
/// so the slack for alignment is part of an ordinary allocation.
struct OwnMemory {
    memory: Box<[u8]>,
    start: usize,
}

impl OwnMemory {
    fn new() -> Self {
        let memory = vec![0; CHUNK_BYTES + CHUNK_ALIGNMENT].into_boxed_slice();
        let start = memory.as_ptr().addr().wrapping_neg() % CHUNK_ALIGNMENT;
        Self { memory, start }
    }

    fn copy_of(bytes: &[u8]) -> Self {
        let mut own = Self::new();
        own.bytes_mut().copy_from_slice(bytes);
        own
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + CHUNK_BYTES]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + CHUNK_BYTES]
    }
}

/// Memory of a chunk.
enum Chunk {
    Own(OwnMemory),
    /// A frozen piece of a client's buffer. Immutable while the client holds the buffer.
    Kept(Kept),
}

impl Chunk {
    fn new() -> Self {
        Self::Own(OwnMemory::new())
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(own) => own.bytes(),
            Self::Kept(kept) => kept.bytes(),
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        if let Self::Kept(kept) = self
            && kept.bytes_mut().is_none()
        {
            *self = Self::Own(OwnMemory::copy_of(kept.bytes()));
        }
        match self {
            Self::Own(own) => own.bytes_mut(),
            Self::Kept(kept) => kept.bytes_mut().expect("only drives hold it by now"),
        }
    }
}

impl Clone for Chunk {
    fn clone(&self) -> Self {
        Self::Own(OwnMemory::copy_of(self.bytes()))
    }
}

type Group = [Option<Chunk>; GROUP_CHUNKS];

/// The contents of a memory drive: chunks in groups, so that finding a byte takes two shifts and
/// two loads.
#[derive(Clone)]
pub(crate) struct Chunks {
    groups: Box<[Option<Box<Group>>]>,
}

impl Chunks {
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        let group_bytes = (GROUP_CHUNKS * CHUNK_BYTES) as u64;
        let count = usize::try_from(capacity_bytes.div_ceil(group_bytes)).expect("a table that fits memory");
        // Zeroed by the system page by page when touched: only the used part of a table takes
        // memory.
        let groups = Box::<[Option<Box<Group>>]>::new_zeroed_slice(count);
        // SAFETY: `None` of an optional box is guaranteed to be all zero bytes.
        Self { groups: unsafe { groups.assume_init() } }
    }

    fn get(&self, index: usize) -> Option<&Chunk> {
        self.groups[index / GROUP_CHUNKS].as_ref()?[index % GROUP_CHUNKS].as_ref()
    }

    /// The chunk's slot, if its group exists.
    fn place(&mut self, index: usize) -> Option<&mut Option<Chunk>> {
        Some(&mut self.groups[index / GROUP_CHUNKS].as_mut()?[index % GROUP_CHUNKS])
    }

    /// The chunk's slot; creates the group.
    fn new_place(&mut self, index: usize) -> &mut Option<Chunk> {
        let group = self.groups[index / GROUP_CHUNKS].get_or_insert_with(|| Box::new([const { None }; _]));
        &mut group[index % GROUP_CHUNKS]
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
            match self.get(index) {
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
            let chunk = self.new_place(index).get_or_insert_with(Chunk::new);
            chunk.bytes_mut()[range].copy_from_slice(source);
        }
    }

    /// Like [`Self::write`], but keeps whole chunks of frozen buffers without a copy.
    fn take(&mut self, offset: u64, from: &Buffer) {
        if from.len() < CHUNK_BYTES || !from.is_frozen() {
            from.with(|bytes| self.write(offset, bytes));
            return;
        }
        let (mut at, mut done) = (offset, 0);
        for (index, range) in Self::pieces(offset, from.len()) {
            let source = from.slice(done..done + range.len());
            match (range.len() == CHUNK_BYTES).then(|| Kept::of(&source)).flatten() {
                Some(kept) => *self.new_place(index) = Some(Chunk::Kept(kept)),
                None => drop(source.with(|bytes| self.write(at, bytes))),
            }
            at += range.len() as u64;
            done += range.len();
        }
    }

    pub(crate) fn zero(&mut self, offset: u64, length: u64) {
        for (index, range) in Self::pieces(offset, length as usize) {
            let Some(place) = self.place(index) else { continue };
            if range.len() == CHUNK_BYTES {
                *place = None;
            } else if let Some(chunk) = place {
                chunk.bytes_mut()[range].fill(0);
            }
        }
    }

    fn allocated_bytes(&self) -> u64 {
        let chunks = self.groups.iter().flatten().flat_map(|group| group.iter().flatten());
        chunks.count() as u64 * CHUNK_BYTES as u64
    }

    pub(crate) fn copy(&self) -> Self {
        self.clone()
    }
}

/// A sparse drive in memory that answers at once.
pub struct MemoryDrive {
    info: DriveInfo,
    chunks: RefCell<Chunks>,
}

impl MemoryDrive {
    /// Creates a drive of `capacity_bytes` (a multiple of 512) that reads as zeros, with blocks of
    /// 512 bytes.
    pub fn new(label: &str, capacity_bytes: u64) -> Rc<Self> {
        Self::with_block(label, capacity_bytes, 512)
    }

    /// Like [`Self::new`], with blocks of 512 or 4096 bytes. `capacity_bytes` must be a multiple.
    pub fn with_block(label: &str, capacity_bytes: u64, logical_block_bytes: u32) -> Rc<Self> {
        let chunks = Chunks::new(capacity_bytes);
        Rc::new(Self::of(memory_info(label, capacity_bytes, logical_block_bytes), chunks))
    }

    pub(crate) fn of(info: DriveInfo, chunks: Chunks) -> Self {
        Self { info, chunks: RefCell::new(chunks) }
    }

    /// Memory that the contents take, in bytes. Kept buffer pieces count like copies.
    pub fn allocated_bytes(&self) -> u64 {
        self.chunks.borrow().allocated_bytes()
    }

    /// Copies contents from `offset_bytes` on, bypassing the queue and its checks: for tests and
    /// tools. Panics beyond the end.
    pub fn peek(&self, offset_bytes: u64, into: &mut [u8]) {
        assert!(offset_bytes + into.len() as u64 <= self.info.capacity_bytes, "peek beyond the drive's end");
        self.chunks.borrow().read(offset_bytes, into);
    }

    /// Changes contents from `offset_bytes` on, bypassing the queue and its checks: for tests and
    /// tools. Panics beyond the end.
    pub fn poke(&self, offset_bytes: u64, from: &[u8]) {
        assert!(offset_bytes + from.len() as u64 <= self.info.capacity_bytes, "poke beyond the drive's end");
        self.chunks.borrow_mut().write(offset_bytes, from);
    }

    pub(crate) fn copy_of_contents(&self) -> Chunks {
        self.chunks.borrow().copy()
    }

    /// Creates another drive with the same contents.
    pub fn duplicate(&self, label: &str) -> Rc<Self> {
        let info = DriveInfo { label: label.into(), ..self.info.clone() };
        Rc::new(Self::of(info, self.copy_of_contents()))
    }
}

/// Identity and geometry of a memory drive.
pub(crate) fn memory_info(label: &str, capacity_bytes: u64, logical_block_bytes: u32) -> DriveInfo {
    assert!(matches!(logical_block_bytes, 512 | 4096), "block size must be 512 or 4096");
    assert!(
        capacity_bytes.is_multiple_of(u64::from(logical_block_bytes)),
        "capacity must be a multiple of the block size"
    );
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

/// Calls `each` for every segment that has bytes, with its offset on the drive.
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
                for_each_segment(&request, |at, segment| chunks.take(at, segment));
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
    use crate::buffer::BufferPool;
    use crate::error::{DriveErrorKind, IoResult};

    fn now(completion: Completion) -> IoResult {
        completion.try_take().unwrap_or_else(|_| panic!("memory answers at once"))
    }

    fn pattern(length: usize, seed: usize) -> Vec<u8> {
        (0..length).map(|index| (index * 31 + seed * 7 + index / 251) as u8).collect()
    }

    #[test]
    fn data_reads_back_across_chunks_and_segments() {
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
    fn zeroing_frees_whole_chunks() {
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
    fn chunks_and_their_copies_are_page_aligned() {
        let chunks = [Chunk::new(), Chunk::new()];
        for chunk in chunks.iter().chain(&chunks.clone()) {
            assert!(chunk.bytes().as_ptr().addr().is_multiple_of(CHUNK_ALIGNMENT));
            assert_eq!(chunk.bytes().len(), CHUNK_BYTES);
        }
    }

    /// Address of the chunk's bytes.
    fn address_of(drive: &MemoryDrive, chunk: usize) -> Option<usize> {
        drive.chunks.borrow().get(chunk).map(|chunk| chunk.bytes().as_ptr().addr())
    }

    fn frozen(pool: &BufferPool, length: usize, seed: usize) -> Buffer {
        let buffer = pool.allocate(length);
        buffer.with_mut(|bytes| bytes.copy_from_slice(&pattern(length, seed)));
        buffer.freeze();
        buffer
    }

    #[test]
    fn whole_chunks_of_frozen_buffers_are_kept() {
        let drive = MemoryDrive::new("m", 4 << 20);
        let pool = BufferPool::new(8 << 20);
        let buffer = frozen(&pool, 4 * CHUNK_BYTES, 1);
        let address = buffer.as_ptr().map(|memory| memory.as_ptr().addr()).unwrap();
        let start = CHUNK_BYTES as u64 / 2;
        now(drive.submit(IoRequest::write(start, buffer.clone(), false))).unwrap();
        let is_kept = |&chunk: &usize| {
            let at = (address + chunk * CHUNK_BYTES).wrapping_sub(CHUNK_BYTES / 2);
            address_of(&drive, chunk) == Some(at)
        };
        assert_eq!((0..5).filter(is_kept).collect::<Vec<_>>(), [1, 2, 3], "parts of chunks are copied");
        let mut contents = vec![0; 4 * CHUNK_BYTES];
        drive.peek(start, &mut contents);
        assert!(contents == pattern(4 * CHUNK_BYTES, 1));
        assert_eq!(drive.allocated_bytes(), 5 * CHUNK_BYTES as u64);
    }

    #[test]
    fn changing_kept_memory_affects_no_other_view() {
        let [first, second] = ["m", "n"].map(|label| MemoryDrive::new(label, 1 << 20));
        let pool = BufferPool::new(8 << 20);
        let buffer = frozen(&pool, 4 * CHUNK_BYTES, 1);
        for drive in [&first, &second] {
            now(drive.submit(IoRequest::write(0, buffer.clone(), false))).unwrap();
        }
        let change = |drive: &MemoryDrive, chunk: usize| {
            let at = (chunk * CHUNK_BYTES) as u64;
            drive.poke(at + 512, &[0xaa; 512]);
            now(drive.submit(IoRequest::range(Operation::WriteZeroes, at + 2048, 512))).unwrap();
        };
        let written = pattern(4 * CHUNK_BYTES, 1);
        let mut expected = written.clone();
        let mut expect_change = |chunk: usize| {
            expected[chunk * CHUNK_BYTES..][512..1024].fill(0xaa);
            expected[chunk * CHUNK_BYTES..][2048..2560].fill(0);
            expected.clone()
        };
        let contents = |drive: &MemoryDrive| {
            let mut contents = vec![0; 4 * CHUNK_BYTES];
            drive.peek(0, &mut contents);
            contents
        };
        // Copied, as another view of the buffer exists.
        let address = address_of(&first, 0);
        change(&first, 0);
        assert!(address_of(&first, 0) != address);
        assert!(contents(&first) == expect_change(0));
        assert!(buffer.to_vec() == written && contents(&second) == written);
        // Changed in place, as only drives hold it.
        drop(buffer);
        let copy = first.duplicate("copy");
        let (before, address) = (contents(&first), address_of(&first, 1));
        change(&first, 1);
        assert!(address.is_some() && address_of(&first, 1) == address);
        assert!(contents(&first) == expect_change(1));
        assert!(contents(&second) == written && contents(&copy) == before);
    }

    #[test]
    fn mutable_buffers_are_copied() {
        let drive = MemoryDrive::new("m", 1 << 20);
        let buffer = BufferPool::new(8 << 20).allocate(CHUNK_BYTES);
        buffer.fill(1);
        now(drive.submit(IoRequest::write(0, buffer.clone(), false))).unwrap();
        buffer.fill(2);
        let mut contents = vec![0; CHUNK_BYTES];
        drive.peek(0, &mut contents);
        assert!(contents.iter().all(|&byte| byte == 1));
    }

    #[test]
    fn kept_memory_returns_to_its_pool_when_overwritten() {
        let drive = MemoryDrive::new("m", 1 << 20);
        let pool = BufferPool::new(8 << 20);
        let first = frozen(&pool, 2 * CHUNK_BYTES, 1);
        let address = first.as_ptr();
        now(drive.submit(IoRequest::write(0, first, false))).unwrap();
        now(drive.submit(IoRequest::range(Operation::Discard, 0, CHUNK_BYTES as u64))).unwrap();
        let next = frozen(&pool, 2 * CHUNK_BYTES, 2);
        assert!(next.as_ptr() != address, "the drive still keeps half of it");
        now(drive.submit(IoRequest::write(CHUNK_BYTES as u64, next, false))).unwrap();
        let again = pool.allocate(2 * CHUNK_BYTES);
        assert_eq!(again.as_ptr(), address);
        again.fill(0);
        let mut contents = vec![0; 2 * CHUNK_BYTES];
        drive.peek(CHUNK_BYTES as u64, &mut contents);
        assert!(contents == pattern(2 * CHUNK_BYTES, 2));
    }

    #[test]
    fn duplicate_is_independent() {
        let drive = MemoryDrive::new("m", 1 << 20);
        drive.poke(0, b"one");
        let copy = drive.duplicate("n");
        drive.poke(0, b"two");
        let mut contents = [0; 3];
        copy.peek(0, &mut contents);
        assert_eq!(&contents, b"one");
    }
}
