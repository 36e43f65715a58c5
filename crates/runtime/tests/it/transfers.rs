//! Requests on file-backed drives, on disk and in memory: what is written is what is read, and what
//! cannot be done says so. Transfers that are cut short are continued.

use crate::kit;
use std::os::unix::fs::FileExt;

use crate::kit::{contents, directories, disk_directory, make, open_new, range, read, run, write};
use stripewise_drive::{
    Buffer, BufferPool, Completion, Drive, DriveErrorKind, IoRequest, IoResult, Operation, Segments,
};
use stripewise_runtime::{OpenOptions, RealExecutor};

const MIB: u64 = 1 << 20;

#[test]
fn written_data_is_read_back_and_is_in_the_file() {
    for directory in directories() {
        for buffered in [false, true] {
            let executor = RealExecutor::new().expect("io_uring");
            let path = make(directory.path(), &format!("drive-{buffered}"), 4 * MIB);
            let options = OpenOptions { buffered, ..OpenOptions::default() };
            let drive = executor.open_drive(&path, &options).expect("opens");
            assert_eq!(drive.is_direct(), !buffered, "on {}", path.display());
            assert!(drive.notices().is_empty(), "{:?}", drive.notices());
            assert_eq!(drive.info().capacity_bytes, 4 * MIB);
            let block = u64::from(drive.info().logical_block_bytes);
            for (offset, length, fua) in [
                (0, block, false),
                (block, 3 * block, true),
                (MIB, MIB + block, false),
                (4 * MIB - block, block, true),
            ] {
                let bytes = contents(offset, length as usize);
                write(&executor, &*drive, offset, &bytes, fua).expect("written");
                assert!(read(&executor, &*drive, offset, length as usize).expect("read") == bytes);
            }
            run(&executor, &*drive, IoRequest::flush()).expect("flushed");
            // Untouched parts read as zeros; the file itself holds what the drive says.
            let all = read(&executor, &*drive, 0, 4 * MIB as usize).expect("read");
            assert!(all[4 * block as usize..MIB as usize].iter().all(|byte| *byte == 0));
            assert!(std::fs::read(&path).expect("a file") == all);
        }
    }
}

#[test]
fn scattered_memory_is_one_range_of_the_drive() {
    for directory in directories() {
        let executor = RealExecutor::new().expect("io_uring");
        let drive = open_new(&executor, directory.path(), 8 * MIB);
        let pool = BufferPool::new(16 << 20);
        // Three separate buffers, one of them in two neighbouring views and one view out of order.
        let (a, b, c) = (pool.allocate(8192), pool.allocate(65536), pool.allocate(4096));
        for (seed, buffer) in [(1, &a), (2, &b), (3, &c)] {
            buffer.with_mut(|bytes| bytes.copy_from_slice(&contents(seed, bytes.len())));
        }
        let views =
            [b.slice(4096..8192), b.slice(8192..65536), a.slice(512..8192), c.clone(), b.slice(0..4096)];
        let expected: Vec<u8> = views.iter().flat_map(Buffer::to_vec).collect();
        let segments: Segments = views.into_iter().collect();
        let request = IoRequest::with_segments(Operation::Write { fua: true }, 3 * 4096, segments);
        run(&executor, &*drive, request).expect("written");
        assert!(read(&executor, &*drive, 3 * 4096, expected.len()).expect("read") == expected);

        // 2,500 pieces: more than one operation may carry.
        let targets: Vec<_> = (0..2500).map(|_| pool.allocate(1024).slice(0..512)).collect();
        let bytes = contents(9, 2500 * 512);
        write(&executor, &*drive, MIB, &bytes, false).expect("written");
        let segments = targets.iter().cloned().collect();
        run(&executor, &*drive, IoRequest::with_segments(Operation::Read, MIB, segments)).expect("read");
        let got: Vec<u8> = targets.iter().flat_map(Buffer::to_vec).collect();
        assert!(got == bytes);
    }
}

#[test]
fn zeroes_and_discards_touch_their_range_only() {
    for directory in directories() {
        let executor = RealExecutor::new().expect("io_uring");
        let drive = open_new(&executor, directory.path(), 4 * MIB);
        let block = u64::from(drive.info().logical_block_bytes);
        let mut model = contents(5, 4 * MIB as usize);
        write(&executor, &*drive, 0, &model, false).expect("written");
        // Ends that are no multiple of a page, twice (the second time the drive has learned how).
        for (start, end) in [(block, MIB + block), (2 * MIB - 3 * block, 3 * MIB)] {
            range(&executor, &*drive, Operation::WriteZeroes, start, end - start).expect("zeroed");
            model[start as usize..end as usize].fill(0);
            assert!(read(&executor, &*drive, 0, model.len()).expect("read") == model);
        }
        range(&executor, &*drive, Operation::Discard, 3 * MIB, MIB / 2).expect("discarded");
        let after = read(&executor, &*drive, 0, model.len()).expect("read");
        let kept =
            |bytes: &[u8]| [&bytes[..3 * MIB as usize], &bytes[(3 * MIB + MIB / 2) as usize..]].concat();
        assert!(kept(&after) == kept(&model), "a discard changed something outside its range");
        range(&executor, &*drive, Operation::Discard, 0, 0).expect("nothing to do");
        range(&executor, &*drive, Operation::WriteZeroes, 4 * MIB, 0).expect("nothing to do");
    }
}

fn kind(result: IoResult) -> DriveErrorKind {
    result.expect_err("must fail").kind
}

#[test]
fn invalid_requests_are_refused_by_kind() {
    let directory = disk_directory();
    let executor = RealExecutor::new().expect("io_uring");
    let drive = open_new(&executor, directory.path(), MIB);
    let pool = BufferPool::new(0);
    let read_at = |offset, buffer| run(&executor, &*drive, IoRequest::read(offset, buffer));
    assert_eq!(kind(read_at(100, pool.allocate(4096))), DriveErrorKind::Misaligned);
    assert_eq!(kind(read_at(0, pool.allocate(4000))), DriveErrorKind::Misaligned);
    assert_eq!(kind(read_at(0, pool.allocate(8192).slice(1..4097))), DriveErrorKind::Misaligned);
    assert_eq!(kind(read_at(MIB - 4096, pool.allocate(8192))), DriveErrorKind::OutOfRange);
    assert_eq!(kind(read_at(u64::MAX - 511, pool.allocate(4096))), DriveErrorKind::OutOfRange);
    let error = read_at(MIB, pool.allocate(4096)).expect_err("beyond the end").to_string();
    assert!(error.contains("drive.img: read of 4096 bytes at 1048576"), "{error}");
    drop(drive);

    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let drive = executor.open_drive(&directory.path().join("drive.img"), &options).expect("opens");
    assert_eq!(kind(write(&executor, &*drive, 0, &[1; 4096], false)), DriveErrorKind::Denied);
    assert_eq!(kind(range(&executor, &*drive, Operation::Discard, 0, 4096)), DriveErrorKind::Denied);
    run(&executor, &*drive, IoRequest::flush()).expect("nothing to flush");
    assert_eq!(read(&executor, &*drive, 0, 4096).expect("read"), vec![0; 4096]);
}

#[test]
fn a_truncated_file_is_gone_and_stays_gone() {
    for directory in directories() {
        for buffered in [false, true] {
            let executor = RealExecutor::new().expect("io_uring");
            let path = make(directory.path(), &format!("drive-{buffered}"), 4 * MIB);
            let drive = executor
                .open_drive(&path, &OpenOptions { buffered, ..OpenOptions::default() })
                .expect("opens");
            write(&executor, &*drive, 0, &contents(1, 4 * MIB as usize), false).expect("written");
            // In the middle of a block and of a request.
            let file = std::fs::File::options().write(true).open(&path).expect("a file");
            file.set_len(2 * MIB + 700).expect("cut");
            assert!(
                read(&executor, &*drive, 0, MIB as usize).expect("what is left") == contents(1, MIB as usize)
            );
            let buffer = Buffer::from_bytes(&vec![0; 2 * MIB as usize]);
            assert_eq!(kind(run(&executor, &*drive, IoRequest::read(MIB, buffer))), DriveErrorKind::Cut);
            file.set_len(4 * MIB).expect("grown again, but with zeros");
            assert!(read(&executor, &*drive, 0, 4096).is_err(), "what comes back is not the drive");
            assert_eq!(kind(write(&executor, &*drive, 0, &[0; 4096], false)), DriveErrorKind::Cut);
        }
    }
}

#[test]
fn a_full_file_system_is_named() {
    for directory in directories() {
        let path = make(directory.path(), "drive.img", MIB);
        // A file size limit stands in for a full file system: it, too, refuses to grow the file. In
        // its own process, as the limit is the process's.
        let output =
            kit::other_process("transfers::helper_that_may_not_grow_files", &path).output().expect("runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
    }
}

#[test]
fn short_requests_to_memory_files_complete_inline() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        return println!("there is no /dev/shm: passed over");
    };
    let executor = RealExecutor::new().expect("io_uring");
    let drive = open_new(&executor, directory.path(), 4 * MIB);
    // Outside the executor: nothing runs but what submitting does.
    let answer_at_once = |request| drive.submit(request).try_take().ok();
    let written = contents(1, 64 << 10);
    for fua in [false, true] {
        let request = IoRequest::write(MIB, Buffer::from_bytes(&written), fua);
        answer_at_once(request).expect("over").expect("written");
    }
    answer_at_once(IoRequest::flush()).expect("over").expect("flushed");
    let buffer = Buffer::from_bytes(&vec![0xEE; written.len()]);
    answer_at_once(IoRequest::read(MIB, buffer.clone())).expect("over").expect("read");
    assert!(buffer.to_vec() == written);

    // A long one goes on beside this thread; a short one after it is not kept waiting by it.
    let long = drive.submit(IoRequest::write(2 * MIB, Buffer::from_bytes(&contents(2, MIB as usize)), false));
    let Err(long) = long.try_take() else { panic!("long requests are the ring's") };
    answer_at_once(IoRequest::read(MIB, buffer)).expect("over").expect("read");
    executor.block_on(long).expect("written");
    assert!(read(&executor, &*drive, 2 * MIB, MIB as usize).expect("read") == contents(2, MIB as usize));

    // A short read detects the truncation, too.
    let file = std::fs::File::options().write(true).open(drive.path()).expect("a file");
    file.set_len(MIB + 700).expect("cut");
    let request = IoRequest::read(MIB, Buffer::from_bytes(&vec![0; 4096]));
    assert_eq!(kind(answer_at_once(request).expect("over")), DriveErrorKind::Cut);
}

#[test]
fn short_writes_are_continued() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        return println!("there is no /dev/shm: passed over");
    };
    let executor = RealExecutor::new().expect("io_uring");
    let drive = open_new(&executor, directory.path(), MIB);
    let pool = BufferPool::new(0);
    // In two buffers, so that the rest begins within one of them, and at the end of one.
    let written = contents(6, 24 << 10);
    let views = [pool.allocate(8 << 10), pool.allocate(16 << 10)];
    views[0].copy_from(&Buffer::from_bytes(&written[..8 << 10]));
    views[1].copy_from(&Buffer::from_bytes(&written[8 << 10..]));
    for (fua, most_bytes) in [(false, 4096), (true, 8192), (false, 12 << 10), (true, 5000)] {
        let operation = Operation::Write { fua };
        let before = short_writes::COUNT.get();
        short_writes::MOST_BYTES.set(most_bytes);
        let request = IoRequest::with_segments(operation, 4096, views.iter().cloned().collect());
        let answered = drive.submit(request).try_take().ok().expect("over");
        short_writes::MOST_BYTES.set(usize::MAX);
        answered.expect("written");
        assert!(short_writes::COUNT.get() > before, "no write was cut short");
        let mut expected = vec![0; MIB as usize];
        expected[4096..4096 + written.len()].copy_from_slice(&written);
        assert!(std::fs::read(drive.path()).expect("a file") == expected, "{most_bytes} bytes at a time");
        range(&executor, &*drive, Operation::WriteZeroes, 0, MIB).expect("zeroed");
    }
}

/// Writes of this program as a kernel executes them that transfers fewer bytes than asked, as
/// kernels may at any time: the system calls that short transfers of files in memory are.
mod short_writes {
    use std::cell::Cell;

    thread_local! {
        /// Longest transfer of a write of this thread.
        pub static MOST_BYTES: Cell<usize> = const { Cell::new(usize::MAX) };
        /// Writes that were cut short.
        pub static COUNT: Cell<u64> = const { Cell::new(0) };
    }

    /// In the place of the C library's.
    ///
    /// # Safety
    /// As for the C library's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn pwritev(
        file: libc::c_int,
        pieces: *const libc::iovec,
        count: libc::c_int,
        offset: libc::off_t,
    ) -> libc::ssize_t {
        // SAFETY: the caller's.
        unsafe { pwritev2(file, pieces, count, offset, 0) }
    }

    /// In the place of the C library's.
    ///
    /// # Safety
    /// As for the C library's.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn pwritev2(
        file: libc::c_int,
        pieces: *const libc::iovec,
        count: libc::c_int,
        offset: libc::off_t,
        flags: libc::c_int,
    ) -> libc::ssize_t {
        // SAFETY: the caller's pieces.
        let mut pieces = unsafe { std::slice::from_raw_parts(pieces, count as usize) }.to_vec();
        let mut rest = MOST_BYTES.get();
        let asked: usize = pieces.iter().map(|piece| piece.iov_len).sum();
        if asked > rest {
            COUNT.set(COUNT.get() + 1);
        }
        for piece in &mut pieces {
            piece.iov_len = piece.iov_len.min(rest);
            rest -= piece.iov_len;
        }
        // SAFETY: the caller's pieces, none of them longer. The offset is in one register, as on
        // all 64-bit systems.
        let written = unsafe {
            libc::syscall(libc::SYS_pwritev2, file, pieces.as_ptr(), pieces.len(), offset, 0_usize, flags)
        };
        written as libc::ssize_t
    }
}

#[test]
fn helper_that_may_not_grow_files() {
    let Some(path) = kit::path_of_this_other_process() else { return };
    let executor = RealExecutor::new().expect("io_uring");
    let drive = executor.open_drive(&path, &OpenOptions::default()).expect("opens");
    let limit = libc::rlimit { rlim_cur: MIB / 2, rlim_max: MIB / 2 };
    // SAFETY: plain system calls on this process, one of them with a pointer to a live structure.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
    }
    write(&executor, &*drive, 0, &[7; 4096], false).expect("below the limit");
    assert_eq!(kind(write(&executor, &*drive, MIB / 2, &[7; 4096], false)), DriveErrorKind::NoSpace);
    assert_eq!(read(&executor, &*drive, 0, 4096).expect("not gone"), vec![7; 4096]);
}

#[test]
fn requests_beyond_the_ring_size_all_complete() {
    for directory in directories() {
        let executor = RealExecutor::new().expect("io_uring");
        let drive = open_new(&executor, directory.path(), 4 * MIB);
        let file = std::fs::File::open(drive.path()).expect("a file");
        write(&executor, &*drive, 0, &contents(4, 4 * MIB as usize), false).expect("written");
        let pool = BufferPool::new(0);
        let block = u64::from(drive.info().logical_block_bytes);
        let blocks = 4 * MIB / block;
        // Beyond the submission queue (256), the completion queue (4096) and what may be in flight.
        let requests: Vec<(u64, Buffer, Completion)> = (0..6000_u64)
            .map(|index| {
                let (offset, buffer) = (index * 7919 % blocks * block, pool.allocate(block as usize));
                let completion = drive.submit(IoRequest::read(offset, buffer.clone()));
                (offset, buffer, completion)
            })
            .collect();
        executor.block_on(async {
            for (offset, buffer, completion) in requests {
                completion.await.expect("read");
                let mut expected = vec![0; block as usize];
                file.read_exact_at(&mut expected, offset).expect("in the file");
                assert!(buffer.to_vec() == expected, "at {offset}");
            }
        });
    }
}

#[test]
fn random_requests_agree_with_plain_memory() {
    let directory = disk_directory();
    let executor = RealExecutor::new().expect("io_uring");
    let drive = open_new(&executor, directory.path(), MIB);
    let block = drive.info().logical_block_bytes as usize;
    let mut model = vec![0_u8; MIB as usize];
    let mut state = 0x5EED_u64;
    let mut random = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    for round in 0..150 {
        // A wave of requests in flight together, each in its own eighth of the drive.
        let mut wave = Vec::new();
        for eighth in 0..8 {
            let from = eighth * model.len() / 8 + random(8) * block;
            let length = (1 + random(64)) * block;
            let (from, length) = (from, length.min((eighth + 1) * model.len() / 8 - from));
            let here = from..from + length;
            let (request, target) = match random(5) {
                0 | 1 => {
                    let bytes = contents(round * 8 + eighth as u64, length);
                    model[here.clone()].copy_from_slice(&bytes);
                    (IoRequest::write(from as u64, Buffer::from_bytes(&bytes), random(4) == 0), None)
                }
                2 => {
                    model[here.clone()].fill(0);
                    (IoRequest::range(Operation::WriteZeroes, from as u64, length as u64), None)
                }
                3 => (IoRequest::flush(), None),
                _ => {
                    let buffer = Buffer::from_bytes(&vec![0xAA; length]);
                    (IoRequest::read(from as u64, buffer.clone()), Some(buffer))
                }
            };
            wave.push((here, target, drive.submit(request)));
        }
        executor.block_on(async {
            for (here, target, completion) in wave {
                completion.await.unwrap_or_else(|error| panic!("round {round}: {error}"));
                if let Some(buffer) = target {
                    assert!(buffer.to_vec() == model[here.clone()], "round {round} at {here:?}");
                }
            }
        });
    }
    assert!(read(&executor, &*drive, 0, model.len()).expect("read") == model);
}

#[test]
fn dropping_the_executor_waits_for_kernel_writes() {
    let directory = disk_directory();
    let path = make(directory.path(), "drive.img", 64 * MIB);
    let pool = BufferPool::new(256 << 20);
    for attempt in 0..4 {
        let executor = RealExecutor::new().expect("io_uring");
        let drive = executor.open_drive(&path, &OpenOptions::default()).expect("opens");
        let request = |index: u64| {
            let buffer = pool.allocate(MIB as usize);
            buffer.fill(index as u8 + 1);
            let request = if attempt % 2 == 0 {
                IoRequest::write(index * MIB, buffer.clone(), false)
            } else {
                IoRequest::read(index * MIB, buffer.clone())
            };
            (index, buffer, drive.submit(request))
        };
        let waiting: Vec<_> = (0..48).map(request).collect();
        // In the kernel by now, most of them unanswered.
        executor.block_on(stripewise_drive::yield_now());
        drop(executor);
        for (index, buffer, completion) in waiting {
            let Ok(result) = completion.try_take() else {
                panic!("request {index} was left without an answer")
            };
            result.expect("completed before the end");
            assert!(buffer.with(|bytes| bytes.iter().all(|byte| *byte == index as u8 + 1)).expect("bytes"));
        }
        let late = drive.submit(IoRequest::flush()).try_take().ok().expect("answered at once");
        assert_eq!(kind(late), DriveErrorKind::Gone);
    }
}

#[test]
fn unsubmitted_requests_are_cancelled_at_the_end() {
    let directory = disk_directory();
    let executor = RealExecutor::new().expect("io_uring");
    let drive = open_new(&executor, directory.path(), MIB);
    let pool = BufferPool::new(0);
    let waiting: Vec<_> = (0..5000).map(|_| drive.submit(IoRequest::read(0, pool.allocate(4096)))).collect();
    drop(executor);
    let results: Vec<_> = waiting.into_iter().map(|c| c.try_take().ok().expect("answered")).collect();
    let cancelled = results.iter().filter(|result| result.is_err()).count();
    assert!(cancelled >= 5000 - 4096, "{cancelled} cancelled");
    assert!(cancelled < 5000, "none was executed");
    let code = results.iter().find_map(|result| result.as_ref().err()?.os_code);
    assert_eq!(code, Some(libc::ECANCELED));
}

#[test]
#[should_panic(expected = "phantom")]
fn phantom_buffers_panic_on_real_drives() {
    let directory = disk_directory();
    let executor = RealExecutor::new().expect("io_uring");
    let drive = open_new(&executor, directory.path(), MIB);
    drop(drive.submit(IoRequest::read(0, Buffer::phantom(4096))));
}
