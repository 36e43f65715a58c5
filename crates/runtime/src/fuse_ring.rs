//! Messages of a FUSE mount over io_uring, which kernels from 6.14 on have where their parameter
//! `fuse.enable_uring` is set. One operation carries an answer to the kernel and fetches the next
//! request: no read and no write of the device for each.
//!
//! The kernel has a queue for each processor and puts a request into that of the processor it comes
//! from. All queues are registered with one ring here. A queue has some entries; each is memory
//! that the kernel copies one request to, and its answer from. Withdrawn requests and nodes that
//! the kernel forgets come over the device itself as before.
//!
//! Numbers and layouts are those of Linux's `include/uapi/linux/fuse.h`. Expected faults: a kernel
//! that refuses (the caller uses the device alone), a mount that ends at any moment (all entries
//! then end with an error), an answer to a request that is not there any more (ignored).

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, select};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use stripewise_drive::{Buffer, Event};

use crate::ring::piece::Piece;
use crate::ring::{Ring, Watch};

/// `FUSE_IO_URING_CMD_REGISTER`: gives the kernel the memory of an entry.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`: answers the request of an entry.
const ANSWER: u32 = 2;
/// Length of `fuse_in_header`.
const REQUEST_HEAD_BYTES: usize = 40;
/// Length of `fuse_out_header`.
const ANSWER_HEAD_BYTES: usize = 16;
/// Memory for the first part of a request after its head.
const OPERATION_BYTES: usize = 128;
/// Total number of entries that is aimed at, over all queues.
const ENTRIES: usize = 256;
/// Bounds of the number of entries of a queue.
const LEAST_ENTRIES: usize = 8;
const MOST_ENTRIES: usize = 32;
/// Offset of the length in an operation of io_uring.
const LENGTH_OFFSET: usize = 24;

/// Head of an entry's request or answer (`fuse_uring_req_header`).
#[repr(C)]
struct Head {
    /// Head of the request, then that of the answer.
    message: [u8; 128],
    operation: [u8; OPERATION_BYTES],
    flags: u64,
    /// Number of the request.
    unique: u64,
    payload_bytes: u32,
    padding: u32,
    reserved: u64,
}

/// Memory that the kernel reads and writes during an operation of the ring.
struct Memory {
    heads: Box<[Head]>,
    /// Mapped, so that pages which are never used take no memory.
    payloads: *mut u8,
    payload_bytes: usize,
    /// Memory of each entry for the kernel: its head, its payload.
    places: Box<[[libc::iovec; 2]]>,
}

impl Memory {
    fn new(entries: usize, payload_bytes: usize) -> io::Result<Self> {
        let length = entries * payload_bytes;
        // SAFETY: maps new memory; no other is concerned.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a head is numbers, for which zeros are valid.
        let mut heads: Box<[Head]> = (0..entries).map(|_| unsafe { std::mem::zeroed() }).collect();
        let payloads = mapped.cast::<u8>();
        let place = |(index, head): (usize, &mut Head)| {
            let head = libc::iovec { iov_base: (&raw mut *head).cast(), iov_len: size_of::<Head>() };
            // SAFETY: within the mapping.
            let payload = unsafe { payloads.add(index * payload_bytes) };
            [head, libc::iovec { iov_base: payload.cast(), iov_len: payload_bytes }]
        };
        let places = heads.iter_mut().enumerate().map(place).collect();
        Ok(Self { heads, payloads, payload_bytes, places })
    }

    fn payload(&mut self, entry: usize) -> &mut [u8] {
        let (start, length) = (entry * self.payload_bytes, self.payload_bytes);
        // SAFETY: within the mapping, which is initialised; `self` is borrowed, and the kernel uses
        // the memory of entries that it was given, of which the payload is not asked for.
        unsafe { std::slice::from_raw_parts_mut(self.payloads.add(start), length) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and no operation of the kernel uses it any more: see
        // `FuseRing::drop`.
        unsafe { libc::munmap(self.payloads.cast(), self.heads.len() * self.payload_bytes) };
    }
}

/// The requests of a mount, over a ring of their own. It is used on the thread of its executor.
pub struct FuseRing {
    main: Rc<Ring>,
    device: OwnedFd,
    uring: RefCell<IoUring<squeue::Entry128>>,
    memory: RefCell<Option<Box<Memory>>>,
    entries_per_queue: usize,
    /// Entries by number of their request, which is to be answered.
    unanswered: RefCell<HashMap<u64, usize>>,
    /// Entries with requests that were not received yet.
    received: RefCell<VecDeque<usize>>,
    /// Answers that the kernel has not seen: entry, number of the request.
    answers: RefCell<Vec<(usize, u64)>>,
    has_answers: Event,
    /// Entries that the kernel has given back for good.
    ended: Cell<usize>,
    watch: RefCell<Option<Rc<Watch>>>,
}

impl FuseRing {
    /// Memory and descriptors for requests with data of at most `payload_bytes` of the mount of
    /// `device`.
    pub(crate) fn new(main: &Rc<Ring>, device: BorrowedFd<'_>, payload_bytes: usize) -> io::Result<Self> {
        let device = device.try_clone_to_owned()?;
        let queues = possible_processors()?;
        let entries_per_queue = (ENTRIES / queues).clamp(LEAST_ENTRIES, MOST_ENTRIES);
        let entries = queues * entries_per_queue;
        let uring = IoUring::<squeue::Entry128, cqueue::Entry>::builder()
            .setup_coop_taskrun()
            .build(entries as u32)?;
        let memory = Box::new(Memory::new(entries, payload_bytes)?);
        Ok(Self {
            main: main.clone(),
            device,
            uring: RefCell::new(uring),
            memory: RefCell::new(Some(memory)),
            entries_per_queue,
            unanswered: RefCell::default(),
            received: RefCell::default(),
            answers: RefCell::default(),
            has_answers: Event::new(),
            ended: Cell::new(0),
            watch: RefCell::default(),
        })
    }

    /// Has the kernel use the ring from now on; to be called once, after version and capabilities
    /// were negotiated. False if it refuses: then all messages come over the device.
    pub fn register(&self) -> bool {
        let entries = self.entries();
        (0..entries).for_each(|entry| self.push(entry, REGISTER, 0));
        self.submit();
        // The kernel refuses at once.
        let mut of_queues = vec![self.entries_per_queue; entries / self.entries_per_queue];
        for completion in self.uring.borrow_mut().completion() {
            let entry = completion.user_data() as usize;
            if completion.result() < 0 {
                self.ended.set(self.ended.get() + 1);
                of_queues[entry / self.entries_per_queue] -= 1;
            } else {
                self.received.borrow_mut().push_back(entry);
            }
        }
        of_queues.iter().all(|entries| *entries > 0)
    }

    /// Ends when there may be a request, or the mount has ended. One may wait at a time.
    pub async fn readable(&self) {
        loop {
            let answers = pin!(self.has_answers.wait());
            self.submit();
            if self.collect() {
                return;
            }
            let watch = self.watch.borrow().clone();
            let watch = watch.unwrap_or_else(|| {
                let watch = Rc::new(Watch { ready: Cell::new(false), changed: Event::new() });
                self.main.watch_readable(self.uring.borrow().as_raw_fd(), watch.clone());
                self.watch.replace(Some(watch.clone()));
                watch
            });
            let was_watched = watch.ready.get()
                || matches!(select(answers, pin!(watch.changed.wait())).await, Either::Right(_));
            if was_watched {
                self.watch.replace(None);
            }
            if self.main.is_closed() {
                return;
            }
        }
    }

    /// The next message, if there is one: its first bytes into `head`, the rest into `body`. Gives
    /// its length, bytes.
    ///
    /// # Errors
    /// `NotConnected` once the mount has ended.
    pub fn try_receive(&self, head: &mut [u8], body: &Buffer) -> io::Result<Option<usize>> {
        let received = self.received.borrow_mut().pop_front();
        let Some(entry) = received.or_else(|| {
            self.collect();
            self.received.borrow_mut().pop_front()
        }) else {
            return match self.ended.get() == self.entries() || self.main.is_closed() {
                true => Err(io::ErrorKind::NotConnected.into()),
                false => Ok(None),
            };
        };
        let mut memory = self.memory.borrow_mut();
        let memory = memory.as_mut().expect("it is there until the drop");
        let of_entry = &memory.heads[entry];
        let payload_bytes = (of_entry.payload_bytes as usize).min(memory.payload_bytes);
        let length = u32::from_ne_bytes(of_entry.message[..4].try_into().expect("four bytes")) as usize;
        let operation_bytes = length.saturating_sub(REQUEST_HEAD_BYTES + payload_bytes).min(OPERATION_BYTES);
        let first = [&of_entry.message[..REQUEST_HEAD_BYTES], &of_entry.operation[..operation_bytes]];
        let unique = of_entry.unique;
        self.unanswered.borrow_mut().insert(unique, entry);
        let mut at = 0;
        for bytes in first {
            at = put(bytes, at, head, body);
        }
        Ok(Some(put(&memory.payload(entry)[..payload_bytes], at, head, body)))
    }

    /// Sends an answer of these pieces, of which the first is the head. It goes to the kernel with
    /// the others of this turn.
    pub fn send(&self, pieces: &[Piece]) {
        let Some((head, mut body)) = pieces.split_first() else { return };
        let mut of_answer = [0; ANSWER_HEAD_BYTES];
        head.with(|bytes| of_answer.copy_from_slice(&bytes[..ANSWER_HEAD_BYTES]));
        let unique = u64::from_ne_bytes(of_answer[8..].try_into().expect("eight bytes"));
        let Some(entry) = self.unanswered.borrow_mut().remove(&unique) else { return };
        let mut memory = self.memory.borrow_mut();
        let memory = memory.as_mut().expect("it is there until the drop");
        if body.iter().map(Piece::len).sum::<usize>() > memory.payload_bytes {
            // The kernel asks for no more than it gave memory for.
            of_answer[4..8].copy_from_slice(&(-libc::EIO).to_ne_bytes());
            body = &[];
        }
        let mut at = 0;
        for piece in body {
            piece.with(|bytes| {
                memory.payload(entry)[at..at + bytes.len()].copy_from_slice(bytes);
                at += bytes.len();
            });
        }
        let of_entry = &mut memory.heads[entry];
        of_entry.message[..ANSWER_HEAD_BYTES].copy_from_slice(&of_answer);
        of_entry.payload_bytes = at as u32;
        self.answers.borrow_mut().push((entry, unique));
        self.has_answers.notify_all();
    }

    fn entries(&self) -> usize {
        self.memory.borrow().as_ref().map_or(0, |memory| memory.heads.len())
    }

    /// Gives the kernel the answers that there are.
    fn submit(&self) {
        for (entry, unique) in self.answers.take() {
            self.push(entry, ANSWER, unique);
        }
        let uring = self.uring.borrow();
        // An interrupted call is repeated with the next answers, or by the end of the wait.
        while let Err(error) = uring.submit() {
            if error.kind() != io::ErrorKind::Interrupted {
                break;
            }
        }
    }

    /// Takes in what the kernel has done. True if there is a request, or the mount has ended.
    fn collect(&self) -> bool {
        let mut received = self.received.borrow_mut();
        for completion in self.uring.borrow_mut().completion() {
            match completion.result() {
                0.. => received.push_back(completion.user_data() as usize),
                _ => self.ended.set(self.ended.get() + 1),
            }
        }
        !received.is_empty() || self.ended.get() == self.entries()
    }

    fn push(&self, entry: usize, command: u32, unique: u64) {
        // `fuse_uring_cmd_req`: flags, number of the request, number of the queue.
        let mut request = [0; 80];
        request[8..16].copy_from_slice(&unique.to_ne_bytes());
        request[16..18].copy_from_slice(&((entry / self.entries_per_queue) as u16).to_ne_bytes());
        let memory = self.memory.borrow();
        let places = &memory.as_ref().expect("it is there until the drop").places[entry];
        let mut operation = opcode::UringCmd80::new(types::Fd(self.device.as_raw_fd()), command)
            .cmd(request)
            .addr(Some(places.as_ptr() as u64))
            .build()
            .user_data(entry as u64);
        const { assert!(size_of::<squeue::Entry128>() == 128) };
        // SAFETY: an operation is 128 bytes in the kernel's layout, `struct io_uring_sqe`, which
        // has a length of 32 bits at this offset: the number of pieces of memory.
        unsafe { (&raw mut operation).cast::<u8>().add(LENGTH_OFFSET).cast::<u32>().write(2) };
        // SAFETY: the memory that the operation points at stays until its answer (`drop`).
        let pushed = unsafe { self.uring.borrow_mut().submission().push(&operation) };
        pushed.expect("there is a place for each entry");
    }
}

/// Puts bytes at the place `at` of a message that begins in `head` and goes on in `body`, as far as
/// there is room. Gives the place after them.
fn put(bytes: &[u8], at: usize, head: &mut [u8], body: &Buffer) -> usize {
    let in_head = bytes.len().min(head.len().saturating_sub(at));
    if in_head > 0 {
        head[at..at + in_head].copy_from_slice(&bytes[..in_head]);
    }
    let (rest, start) = (&bytes[in_head..], (at + in_head).saturating_sub(head.len()));
    let length = rest.len().min(body.len().saturating_sub(start));
    if length > 0 {
        body.with_mut(|body| body[start..start + length].copy_from_slice(&rest[..length]));
    }
    at + in_head + length
}

/// Number of processors that the system may have, which is the kernel's number of queues.
fn possible_processors() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    count_of_list(text.trim()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Number of elements of a list such as `0-3,8-11`.
fn count_of_list(list: &str) -> Option<usize> {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    };
    list.split(',').map(count).sum()
}

impl Drop for FuseRing {
    fn drop(&mut self) {
        self.collect();
        if self.ended.get() < self.entries() {
            // The kernel may still write to the memory of the others: it is never given back.
            std::mem::forget(self.memory.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use stripewise_drive::BufferPool;

    use super::*;

    #[test]
    fn a_message_goes_on_in_its_body() {
        let (mut head, body) = ([0; 4], BufferPool::new(1 << 20).allocate(4));
        let at = put(&[1, 2, 3], 0, &mut head, &body);
        let at = put(&[], at, &mut head, &body);
        let at = put(&[4, 5, 6], at, &mut head, &body);
        assert_eq!(put(&[7, 8, 9], at, &mut head, &body), 8, "no more than there is room for");
        assert_eq!((head, body.to_vec()), ([1, 2, 3, 4], vec![5, 6, 7, 8]));
    }

    #[test]
    fn the_head_has_the_layout_of_the_kernel() {
        assert_eq!(size_of::<Head>(), 288);
        assert!(possible_processors().expect("Linux") > 0);
    }

    #[test]
    fn a_list_of_processors_may_have_gaps() {
        let counts = ["0", "0-1", "0-3,8-11", "0,2-3,7"].map(count_of_list);
        assert_eq!(counts, [Some(1), Some(2), Some(8), Some(4)]);
        assert_eq!(["", "0-", "3-1", "a"].map(count_of_list), [None; 4]);
    }
}
