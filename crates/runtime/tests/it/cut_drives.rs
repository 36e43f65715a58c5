//! Files truncated by another program, and devices that shrink or are overcommitted, while they are
//! written to: the drive is lost, and holes made by its own writes are never read as data.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use crate::block_devices::LoopDevice;
use crate::kit::{contents, directories, disk_directory, make, mount, range, read, run, write};
use stripewise_drive::{Buffer, Drive, DriveErrorKind, IoRequest, IoResult, Operation};
use stripewise_runtime::{CreateOptions, OpenOptions, RealExecutor, create_drive_file};

const MIB: u64 = 1 << 20;

fn kind(result: IoResult) -> DriveErrorKind {
    result.expect_err("must fail").kind
}

fn cut(path: &Path, length: u64) {
    let file = File::options().write(true).open(path).expect("a file");
    file.set_len(length).expect("cut");
}

fn length(path: &Path) -> u64 {
    path.metadata().expect("a file").len()
}

/// True if a write's length check waits for the next read or flush: a short write to a file in
/// memory.
fn is_checked_later(path: &Path, written: usize) -> bool {
    path.starts_with("/dev/shm") && written <= 64 << 10
}

/// Runs `promise` on each file system, with and without the page cache, and with writes of two
/// sizes.
fn everywhere(size_bytes: u64, promise: impl Fn(&RealExecutor, &dyn Drive, &Path, usize)) {
    for directory in directories() {
        for (buffered, written) in [(false, 4096), (false, 256 << 10), (true, 4096), (true, 256 << 10)] {
            let executor = RealExecutor::new().expect("io_uring");
            let path = make(directory.path(), &format!("drive-{buffered}-{written}"), size_bytes);
            let options = OpenOptions { buffered, ..OpenOptions::default() };
            let drive = executor.open_drive(&path, &options).expect("opens");
            write(&executor, &*drive, 0, &contents(1, size_bytes as usize), false).expect("written");
            promise(&executor, &*drive, &path, written);
        }
    }
}

#[test]
fn a_write_past_a_cut_loses_the_drive() {
    everywhere(4 * MIB, |executor, drive, path, written| {
        cut(path, MIB);
        // The rest can be read, since no write has made a hole yet.
        assert!(read(executor, drive, 0, MIB as usize).expect("left") == contents(1, MIB as usize));
        let answer = write(executor, drive, 3 * MIB, &vec![2; written], false);
        assert!(length(path) > 3 * MIB, "the write has made a hole");
        assert!(is_checked_later(path, written) || kind(answer) == DriveErrorKind::Cut);
        assert!(read(executor, drive, 2 * MIB, 4096).is_err(), "the hole is not read");
        // Lengthening the file does not bring the drive back.
        cut(path, 4 * MIB);
        assert!(read(executor, drive, 0, 4096).is_err());
        assert_eq!(kind(run(executor, drive, IoRequest::flush())), DriveErrorKind::Cut);
    });
}

#[test]
fn a_flush_is_refused_after_a_cut() {
    everywhere(2 * MIB, |executor, drive, path, written| {
        write(executor, drive, MIB, &vec![2; written], false).expect("written");
        cut(path, MIB);
        assert_eq!(kind(run(executor, drive, IoRequest::flush())), DriveErrorKind::Cut);
    });
    everywhere(2 * MIB, |executor, drive, path, written| {
        cut(path, MIB);
        let _ = write(executor, drive, MIB, &vec![2; written], false);
        assert_eq!(kind(run(executor, drive, IoRequest::flush())), DriveErrorKind::Cut);
    });
    everywhere(2 * MIB, |executor, drive, path, written| {
        cut(path, MIB);
        assert_eq!(kind(write(executor, drive, MIB, &vec![2; written], true)), DriveErrorKind::Cut);
    });
}

#[test]
fn reads_beside_a_write_see_no_hole() {
    everywhere(4 * MIB, |executor, drive, path, written| {
        cut(path, MIB);
        let data = Buffer::from_bytes(&vec![2; written]);
        let writing = drive.submit(IoRequest::write(3 * MIB, data, false));
        let buffers: Vec<Buffer> = (0..16).map(|_| Buffer::from_bytes(&[7; 4096])).collect();
        let reading: Vec<_> = buffers
            .iter()
            .zip(0..)
            .map(|(buffer, index)| drive.submit(IoRequest::read(2 * MIB + index * 4096, buffer.clone())))
            .collect();
        executor.block_on(async {
            for answer in reading {
                assert_eq!(kind(answer.await), DriveErrorKind::Cut);
            }
            let answer = writing.await;
            assert!(is_checked_later(path, written) || kind(answer) == DriveErrorKind::Cut);
        });
    });
}

#[test]
fn the_last_block_does_not_hide_a_cut() {
    everywhere(2 * MIB, |executor, drive, path, written| {
        cut(path, MIB);
        let last = 2 * MIB - written as u64;
        assert_eq!(kind(write(executor, drive, last, &vec![2; written], true)), DriveErrorKind::Cut);
        assert_eq!(length(path), MIB, "the file stays short");
        assert!(read(executor, drive, MIB, 4096).is_err());
    });
    everywhere(2 * MIB, |executor, drive, path, written| {
        cut(path, MIB);
        let (last, bytes) = (2 * MIB - written as u64, written as u64);
        let zeroed = range(executor, drive, Operation::WriteZeroes, last, bytes);
        assert_eq!(kind(zeroed), DriveErrorKind::Cut);
        assert_eq!(length(path), MIB);
    });
}

#[test]
fn a_device_that_shrank_is_lost() {
    let directory = disk_directory();
    let file = directory.path().join("disk");
    create_drive_file(&file, &CreateOptions::new(8 * MIB)).expect("made");
    let Some(device) = LoopDevice::over(&file, 512) else { return };
    let shrinks = |to: u64| {
        cut(&file, to);
        let resized = Command::new("losetup").arg("--set-capacity").arg(&device.0).status();
        assert!(resized.expect("losetup").success());
    };
    let requests = [
        IoRequest::write(6 * MIB, Buffer::from_bytes(&[1; 4096]), false),
        IoRequest::write(4 * MIB - 4096, Buffer::from_bytes(&[1; 8192]), false),
        IoRequest::flush(),
    ];
    for request in requests {
        shrinks(8 * MIB);
        let executor = RealExecutor::new().expect("io_uring");
        let drive = executor.open_drive(&device.0, &OpenOptions::default()).expect("opens");
        write(&executor, &*drive, 0, &contents(1, 8 * MIB as usize), true).expect("written");
        shrinks(4 * MIB);
        let shown = format!("{request:?}");
        assert_eq!(kind(run(&executor, &*drive, request)), DriveErrorKind::Cut, "{shown}");
        assert!(drive.is_gone());
    }
}

#[test]
fn a_full_device_errs_and_a_full_file_is_full() {
    let directory = disk_directory();
    if let Err(error) = mount(directory.path(), c"tmpfs", c"size=2m") {
        println!("skipped: a small file system could not be mounted: {error}");
        return;
    }
    let file = directory.path().join("disk");
    let sparse = CreateOptions { overcommit: true, ..CreateOptions::new(8 * MIB) };
    create_drive_file(&file, &sparse).expect("made");
    let executor = RealExecutor::new().expect("io_uring");
    let bytes = contents(1, 4 * MIB as usize);
    {
        let drive = executor.open_drive(&file, &OpenOptions::default()).expect("opens");
        let error = write(&executor, &*drive, 0, &bytes, true).expect_err("no room");
        assert_eq!((error.kind, error.os_code), (DriveErrorKind::NoSpace, Some(libc::ENOSPC)));
    }
    let Some(device) = LoopDevice::over(&file, 512) else { return };
    let drive = executor.open_drive(&device.0, &OpenOptions::default()).expect("opens");
    // Like a thin volume without space behind it.
    let error = write(&executor, &*drive, 4 * MIB, &bytes, true).expect_err("no room");
    assert_eq!((error.kind, error.os_code), (DriveErrorKind::Medium, Some(libc::ENOSPC)), "{error}");
    assert!(!drive.is_gone(), "the rest of the device is there");
    assert!(read(&executor, &*drive, 0, 4096).is_ok());
}
