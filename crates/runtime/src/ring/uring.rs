//! One request of a file or block device as io_uring operations, step by step: which operation
//! comes next, and what an answer means.
//!
//! Expected faults: transfers cut short (continued), a file that was truncated (a read past its new
//! end gives nothing, and a look at its length finds what was written past it: the drive is gone;
//! see `opened.rs`), a block device without room behind it (an error of the drive, unlike a full
//! file system, which is none), operations interrupted or momentarily refused (repeated a
//! bounded number of times), file systems and devices without discard or without fast zeroing
//! (discard is advice and may do nothing; zeros are then written), and errors of the medium (passed
//! on by kind).

use std::os::fd::AsRawFd;
use std::rc::Rc;

use io_uring::{opcode, squeue, types};
use stripewise_drive::{
    CompletionSender, DriveError, DriveErrorKind, IoRequest, IoResult, Operation, Segments,
};

use crate::files::opened::{Opened, ZeroMethod};
use crate::ring::errno;

/// The kernel's own limit on the pieces of one scattered transfer (UIO_MAXIOV).
const MAX_PIECES: usize = 1024;
/// No single transfer is longer; the kernel's own limit is 2 GiB less a page.
const MAX_TRANSFER_BYTES: usize = 1 << 30;
/// Longest transfer of a file in memory that is not left to the ring: copying it takes some
/// microseconds.
const MAX_DIRECT_BYTES: u64 = 64 << 10;
/// Maximum repetitions of an interrupted or refused operation.
const MAX_REPEATS: u8 = 64;

/// Zeros to write where nothing faster zeroes a range.
#[repr(align(4096))]
struct Zeros([u8; 128 * 1024]);
static ZEROS: Zeros = Zeros([0; 128 * 1024]);
/// One zeroing write is at most this many pieces of [`ZEROS`]: 1 MiB.
const MAX_ZERO_PIECES: usize = 8;

/// A request in the ring's table.
pub(crate) struct DriveOp {
    drive: Rc<Opened>,
    request: IoRequest,
    sender: CompletionSender,
    /// Transferred so far.
    done_bytes: u64,
    /// Method that the last operation used to zero; the drive may have changed its method since.
    zeroing: ZeroMethod,
    /// Operations in a row that brought nothing.
    repeats: u8,
}

/// State of a request after an answer.
pub(crate) enum Progress {
    /// There is a result.
    Done(IoResult),
    /// Another operation is needed: [`DriveOp::entry`] gives it.
    Again,
}

/// True if a request past the end of a truncated file would extend the file.
pub(crate) fn lengthens(operation: Operation) -> bool {
    matches!(operation, Operation::Write { .. } | Operation::WriteZeroes)
}

impl DriveOp {
    pub(crate) fn new(drive: Rc<Opened>, request: IoRequest, sender: CompletionSender) -> Self {
        let zeroing = drive.zeroing.get();
        if lengthens(request.operation) {
            drive.lengthening.begin();
        }
        Self { drive, request, sender, done_bytes: 0, zeroing, repeats: 0 }
    }

    /// The next operation. What it points at is in the request's buffers, in `iovecs` or static,
    /// and must stay until the answer.
    pub(crate) fn entry(&mut self, iovecs: &mut Vec<libc::iovec>) -> squeue::Entry {
        let file = types::Fd(self.drive.file().as_raw_fd());
        let offset = self.request.offset_bytes + self.done_bytes;
        let rest_bytes = self.request.length_bytes - self.done_bytes;
        let fallocate = |mode| {
            opcode::Fallocate::new(file, rest_bytes)
                .offset(offset)
                .mode(mode | libc::FALLOC_FL_KEEP_SIZE)
                .build()
        };
        match self.request.operation {
            Operation::Flush => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
            Operation::Discard => fallocate(libc::FALLOC_FL_PUNCH_HOLE),
            Operation::Read => {
                let block = self.drive.info.logical_block_bytes as usize;
                gather(&self.request.segments, self.done_bytes as usize, block, iovecs);
                match iovecs[..] {
                    [one] => {
                        let length = one.iov_len as u32;
                        opcode::Read::new(file, one.iov_base.cast(), length).offset(offset).build()
                    }
                    _ => {
                        opcode::Readv::new(file, iovecs.as_ptr(), iovecs.len() as u32).offset(offset).build()
                    }
                }
            }
            Operation::Write { fua } => {
                let block = self.drive.info.logical_block_bytes as usize;
                gather(&self.request.segments, self.done_bytes as usize, block, iovecs);
                let flags = if fua { libc::RWF_DSYNC } else { 0 };
                write(file, offset, flags, iovecs)
            }
            Operation::WriteZeroes => {
                self.zeroing = self.drive.zeroing.get();
                match self.zeroing {
                    ZeroMethod::Range => fallocate(libc::FALLOC_FL_ZERO_RANGE),
                    ZeroMethod::Punch => fallocate(libc::FALLOC_FL_PUNCH_HOLE),
                    ZeroMethod::Write => {
                        gather_zeros(rest_bytes, iovecs);
                        write(file, offset, 0, iovecs)
                    }
                }
            }
        }
    }

    /// Processes `answer` (bytes, or a negated error number) to the last operation; `turn` is the
    /// ring's ([`Opened::is_lost`]).
    pub(crate) fn advance(&mut self, answer: i32, turn: u64) -> Progress {
        match self.step(answer) {
            Progress::Done(outcome) => Progress::Done(self.unless_cut(outcome, turn)),
            Progress::Again => Progress::Again,
        }
    }

    /// The outcome, unless the drive is shorter than it was.
    fn unless_cut(&self, outcome: IoResult, turn: u64) -> IoResult {
        let drive = &*self.drive;
        let looks = match self.request.operation {
            Operation::Flush => true,
            // This thread executes the write: one check at the next read or flush covers many.
            Operation::Write { fua: false } if turn == 0 => {
                drive.common.note_uncompared();
                false
            }
            operation if lengthens(operation) => drive.is_file(),
            // Until a write is answered, and the length looked at, it may have made a hole.
            Operation::Read => drive.may_have_grown() && drive.is_file(),
            _ => false,
        };
        let is_lost = if looks { drive.is_lost(turn) } else { drive.common.lost().is_some() };
        if is_lost { outcome.and(Err(self.lost(None))) } else { outcome }
    }

    fn step(&mut self, answer: i32) -> Progress {
        if answer < 0 {
            return self.failed(-answer);
        }
        match self.request.operation {
            Operation::Flush | Operation::Discard => return Progress::Done(Ok(())),
            Operation::WriteZeroes if self.zeroing != ZeroMethod::Write => return Progress::Done(Ok(())),
            _ => {}
        }
        let block = u64::from(self.drive.info.logical_block_bytes);
        let partial_bytes = answer as u64 % block;
        let whole_bytes = answer as u64 - partial_bytes;
        self.done_bytes += whole_bytes;
        if self.done_bytes >= self.request.length_bytes {
            return Progress::Done(Ok(()));
        }
        if self.request.operation == Operation::Read && (answer == 0 || partial_bytes > 0) {
            // The file or device ends here, and did not when it was opened.
            self.drive.is_lost(0);
            return Progress::Done(Err(self.lost(None)));
        }
        if whole_bytes > 0 {
            self.repeats = 0;
            return Progress::Again;
        }
        self.repeat_or(libc::EIO)
    }

    fn failed(&mut self, code: i32) -> Progress {
        // Some file systems and devices refuse a mode of fallocate they do not have by calling it
        // invalid.
        let unsupported = matches!(code, libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL);
        match self.request.operation {
            Operation::Discard if unsupported => {
                self.drive.discards.set(false);
                Progress::Done(Ok(()))
            }
            Operation::WriteZeroes if unsupported && self.zeroing != ZeroMethod::Write => {
                let next = match self.zeroing {
                    ZeroMethod::Range if self.drive.is_file() => ZeroMethod::Punch,
                    _ => ZeroMethod::Write,
                };
                self.drive.zeroing.set(self.drive.zeroing.get().max(next));
                Progress::Again
            }
            _ if matches!(code, libc::EAGAIN | libc::EINTR) => self.repeat_or(code),
            _ => Progress::Done(Err(self.error(code))),
        }
    }

    fn repeat_or(&mut self, code: i32) -> Progress {
        if self.repeats >= MAX_REPEATS {
            return Progress::Done(Err(self.error(code)));
        }
        self.repeats += 1;
        Progress::Again
    }

    fn error(&self, code: i32) -> DriveError {
        match errno::kind_of(code) {
            DriveErrorKind::Gone => self.lost(Some(code)),
            // A device that shrank, or one with less behind it than it says (a thin volume).
            DriveErrorKind::NoSpace if !self.drive.is_file() => match self.drive.is_lost(0) {
                true => self.lost(Some(code)),
                false => self.request.error(&self.drive.info.label, DriveErrorKind::Medium, Some(code)),
            },
            kind => self.request.error(&self.drive.info.label, kind, Some(code)),
        }
    }

    /// The error of a drive that is lost: gone, unless it is known that it was cut.
    fn lost(&self, code: Option<i32>) -> DriveError {
        self.drive.lose(DriveErrorKind::Gone);
        let kind = self.drive.common.lost().unwrap_or(DriveErrorKind::Gone);
        self.request.error(&self.drive.info.label, kind, code)
    }

    /// The error of a request that was never given to the kernel because the executor ended.
    pub(crate) fn cancelled(&self) -> DriveError {
        self.request.error(&self.drive.info.label, DriveErrorKind::Other, Some(libc::ECANCELED))
    }

    /// Carries the request out by system calls of this thread, to its end, where the drive's file
    /// lies in memory: io_uring would have a kernel thread do the same, and being woken costs more
    /// than copying a few blocks. `None`, and nothing done, if it is to go through the ring: other
    /// drives, long transfers (these go on beside this thread), zeroing and discarding.
    pub(crate) fn carry_out_in_memory(&mut self, iovecs: &mut Vec<libc::iovec>) -> Option<IoResult> {
        let is_short = self.request.length_bytes <= MAX_DIRECT_BYTES;
        let transfers = matches!(self.request.operation, Operation::Read | Operation::Write { .. });
        let flushes = self.request.operation == Operation::Flush;
        if !self.drive.in_memory || !(flushes || transfers && is_short) {
            return None;
        }
        loop {
            let answer = self.call(iovecs);
            if let Progress::Done(outcome) = self.advance(answer, 0) {
                return Some(outcome);
            }
        }
    }

    /// The next operation of a read, write or flush as a system call; bytes, or an error number
    /// negated, as the ring answers.
    fn call(&mut self, iovecs: &mut Vec<libc::iovec>) -> i32 {
        let file = self.drive.file().as_raw_fd();
        let offset = (self.request.offset_bytes + self.done_bytes) as libc::off_t;
        let answer = if self.request.operation == Operation::Flush {
            // SAFETY: takes a descriptor, which the drive owns.
            unsafe { libc::fdatasync(file) as isize }
        } else {
            let block = self.drive.info.logical_block_bytes as usize;
            gather(&self.request.segments, self.done_bytes as usize, block, iovecs);
            let (first, count) = (iovecs.as_ptr(), iovecs.len() as libc::c_int);
            // SAFETY: the pieces are parts of the request's buffers, which are this request's until
            // it is answered.
            unsafe {
                match self.request.operation {
                    Operation::Write { fua: true } => {
                        libc::pwritev2(file, first, count, offset, libc::RWF_DSYNC)
                    }
                    Operation::Write { fua: false } => libc::pwritev(file, first, count, offset),
                    _ => libc::preadv(file, first, count, offset),
                }
            }
        };
        if answer < 0 {
            return -std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        }
        answer as i32
    }

    /// Gives the answer to the waiting future, after dropping the buffers.
    pub(crate) fn finish(self, outcome: IoResult) {
        let Self { drive, request, sender, .. } = self;
        if lengthens(request.operation) {
            drive.lengthening.end();
        }
        drop((request, drive));
        sender.complete(outcome);
    }
}

fn write(file: types::Fd, offset: u64, flags: libc::c_int, iovecs: &[libc::iovec]) -> squeue::Entry {
    match iovecs {
        [one] => opcode::Write::new(file, one.iov_base.cast_const().cast(), one.iov_len as u32)
            .offset(offset)
            .rw_flags(flags)
            .build(),
        _ => opcode::Writev::new(file, iovecs.as_ptr(), iovecs.len() as u32)
            .offset(offset)
            .rw_flags(flags)
            .build(),
    }
}

/// The pieces of `segments` from `skip_bytes` on, neighbours in memory joined; no more pieces or
/// bytes than one operation takes, and whole blocks of `block_bytes` in all.
fn gather(segments: &Segments, mut skip_bytes: usize, block_bytes: usize, iovecs: &mut Vec<libc::iovec>) {
    iovecs.clear();
    let mut total_bytes = 0;
    for segment in segments {
        let skipped = skip_bytes.min(segment.len());
        skip_bytes -= skipped;
        let length = (segment.len() - skipped).min(MAX_TRANSFER_BYTES - total_bytes);
        if length == 0 {
            continue;
        }
        let memory = segment.as_ptr().expect("checked when submitted");
        let start = memory.as_ptr().wrapping_add(skipped);
        let joins = |last: &libc::iovec| last.iov_base.cast::<u8>().wrapping_add(last.iov_len) == start;
        if let Some(last) = iovecs.last_mut().filter(|last| joins(last)) {
            last.iov_len += length;
        } else if iovecs.len() < MAX_PIECES {
            iovecs.push(libc::iovec { iov_base: start.cast(), iov_len: length });
        } else {
            break;
        }
        total_bytes += length;
    }
    let mut excess_bytes = total_bytes % block_bytes;
    while excess_bytes > 0 {
        let last = iovecs.last_mut().expect("the excess is part of what was gathered");
        let cut = excess_bytes.min(last.iov_len);
        last.iov_len -= cut;
        excess_bytes -= cut;
        if last.iov_len == 0 {
            iovecs.pop();
        }
    }
}

fn gather_zeros(length_bytes: u64, iovecs: &mut Vec<libc::iovec>) {
    iovecs.clear();
    let mut rest = length_bytes;
    while rest > 0 && iovecs.len() < MAX_ZERO_PIECES {
        let length = rest.min(ZEROS.0.len() as u64);
        iovecs.push(libc::iovec { iov_base: ZEROS.0.as_ptr().cast_mut().cast(), iov_len: length as usize });
        rest -= length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_drive::{Buffer, BufferPool};

    fn lengths(iovecs: &[libc::iovec]) -> Vec<usize> {
        iovecs.iter().map(|iovec| iovec.iov_len).collect()
    }

    #[test]
    fn neighbours_in_memory_become_one_piece() {
        let buffer = BufferPool::new(0).allocate(16 << 10);
        let cut: Segments =
            [0..4096, 4096..8192, 12288..16384].map(|range| buffer.slice(range)).into_iter().collect();
        let mut iovecs = Vec::new();
        gather(&cut, 0, 512, &mut iovecs);
        assert_eq!(lengths(&iovecs), [8192, 4096]);
        gather(&cut, 5120, 512, &mut iovecs);
        assert_eq!(lengths(&iovecs), [3072, 4096]);
        assert_eq!(iovecs[0].iov_base.addr(), buffer.as_ptr().expect("bytes").as_ptr().addr() + 5120);
        gather(&cut, 8192, 512, &mut iovecs);
        assert_eq!(lengths(&iovecs), [4096]);
    }

    #[test]
    fn gather_keeps_to_whole_blocks_and_the_iovec_limit() {
        let buffer = BufferPool::new(0).allocate(4096);
        // 1500 pieces of 1536 bytes (three sectors) that are no neighbours, on a drive of 4096-byte
        // blocks.
        let pieces: Segments = (0..1500).map(|_| buffer.slice(0..1536)).collect();
        let mut iovecs = Vec::new();
        gather(&pieces, 0, 4096, &mut iovecs);
        assert!(iovecs.len() <= MAX_PIECES);
        let total: usize = lengths(&iovecs).iter().sum();
        assert_eq!(total, 1024 * 1536 / 4096 * 4096);
        // The rest follows in further operations, without loss.
        let mut done = 0;
        while done < 1500 * 1536 / 4096 * 4096 {
            gather(&pieces, done, 4096, &mut iovecs);
            done += lengths(&iovecs).iter().sum::<usize>();
        }
        assert_eq!(done, 1500 * 1536 / 4096 * 4096);
    }

    #[test]
    fn zeros_come_in_bounded_pieces() {
        let mut iovecs = Vec::new();
        gather_zeros(10 << 20, &mut iovecs);
        assert_eq!(lengths(&iovecs).iter().sum::<usize>(), 1 << 20);
        gather_zeros(132 * 1024, &mut iovecs);
        assert_eq!(lengths(&iovecs), [128 * 1024, 4096]);
        let empty = Buffer::from_bytes(&[]);
        gather(&std::iter::once(empty).collect(), 0, 512, &mut iovecs);
        assert!(iovecs.is_empty());
    }
}
