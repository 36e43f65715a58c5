//! Opening, locking, making and losing drives.

use crate::kit;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::kit::{
    directories, disk_directory, make, open_new, other_process, path_of_this_other_process, still_there,
};
use stripewise_drive::{Drive, DriveErrorKind, DriveKind, IoRequest};
use stripewise_runtime::{
    AttributeError, CreateError, CreateOptions, DriveIdentity, Holder, Notice, OpenError, OpenOptions,
    RealExecutor, Vanished, clear_pace_attribute, create_drive_file, drive_identity, free_space_bytes,
    pace_attribute, set_pace_attribute,
};

const MIB: u64 = 1 << 20;

fn open_error(path: &Path) -> OpenError {
    let executor = RealExecutor::new().expect("io_uring");
    match executor.open_drive(path, &OpenOptions::default()) {
        Ok(_) => panic!("{} opened", path.display()),
        Err(error) => error,
    }
}

#[test]
fn paths_that_are_not_drives_are_refused_by_kind() {
    let directory = disk_directory();
    let at = |name: &str| directory.path().join(name);
    assert!(matches!(open_error(&at("missing")), OpenError::NotFound { .. }));
    std::fs::write(at("plain"), vec![0; 8192]).expect("a file");
    assert!(matches!(open_error(&at("plain/below")), OpenError::NotFound { .. }));
    let what = |path: &Path| match (open_error(path), drive_identity(path)) {
        (OpenError::NotADrive { what, .. }, Err(OpenError::NotADrive { what: same, .. })) if what == same => {
            what
        }
        (other, _) => panic!("{other}"),
    };
    assert_eq!(what(directory.path()), "a directory");
    assert_eq!(what(Path::new("/dev/null")), "a character device");
    let _listener = UnixListener::bind(at("socket")).expect("a socket");
    assert_eq!(what(&at("socket")), "a socket");
    let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().expect("mkfifo");
    assert!(made.success());
    assert_eq!(what(&at("pipe")), "a pipe");
    std::fs::write(at("small"), vec![0; 4095]).expect("a file");
    assert!(matches!(open_error(&at("small")), OpenError::TooSmall { size_bytes: 4095, .. }));
    symlink("nowhere", at("dangling")).expect("a link");
    let error = open_error(&at("dangling"));
    assert!(matches!(error, OpenError::NotFound { .. }));
    assert!(error.to_string().contains("dangling: no such file"), "{error}");
    assert!(error.hint().expect("a hint").contains("drive make"));
}

#[test]
fn a_drive_has_one_identity_and_opens_once() {
    for directory in directories() {
        let executor = RealExecutor::new().expect("io_uring");
        let drive = open_new(&executor, directory.path(), MIB);
        assert_eq!(drive.info().kind, DriveKind::File);
        let link = directory.path().join("link");
        symlink(drive.path(), &link).expect("a link");
        let other = make(directory.path(), "other", MIB);
        assert_eq!(drive_identity(&link).expect("a drive"), drive.identity());
        assert_ne!(drive_identity(&other).expect("a drive"), drive.identity());
        assert!(matches!(drive.identity(), DriveIdentity::File { .. }));

        let error = open_error(&link);
        assert!(matches!(&error, OpenError::Busy { holder: Holder::ThisProcess, .. }), "{error}");
        assert!(error.hint().expect("a hint").contains("named twice"));
        // Looking without a lock is always possible.
        let unlocked = OpenOptions { read_only: true, lock: false, ..OpenOptions::default() };
        executor.open_drive(&link, &unlocked).expect("opens");
        drop(drive);
        let reader = OpenOptions { read_only: true, ..OpenOptions::default() };
        let _first = executor.open_drive(&link, &reader).expect("opens");
        let _second = executor.open_drive(&link, &reader).expect("readers share");
        assert!(matches!(open_error(&link), OpenError::Busy { .. }));
    }
}

#[test]
fn an_odd_length_loses_only_the_partial_block() {
    let directory = disk_directory();
    let path = directory.path().join("odd");
    std::fs::write(&path, vec![3; 10_000]).expect("a file");
    let executor = RealExecutor::new().expect("io_uring");
    let drive = executor.open_drive(&path, &OpenOptions::default()).expect("opens");
    let block = u64::from(drive.info().logical_block_bytes);
    assert_eq!(drive.info().capacity_bytes, 10_000 / block * block);
    still_there(&drive).expect("an odd length is not a loss");
    let last = drive.info().capacity_bytes - block;
    assert_eq!(kit::read(&executor, &*drive, last, block as usize).expect("read"), vec![3; block as usize]);
}

fn hold_in_other_process(path: &Path) -> Child {
    let held = path.with_extension("held");
    let child = other_process("opening::helper_that_holds_a_drive", path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("runs");
    kit::wait_until("the other process opens the drive", || held.exists());
    child
}

#[test]
fn helper_that_holds_a_drive() {
    let Some(path) = path_of_this_other_process() else { return };
    let executor = RealExecutor::new().expect("io_uring");
    let drive = executor.open_drive(&path, &OpenOptions::default()).expect("opens");
    std::fs::write(path.with_extension("held"), "").expect("written");
    // Requests in the kernel when this process is killed; bounded in case it is not killed.
    let context = executor.context();
    executor.block_on(async {
        for _ in 0..2_000 {
            kit::wait_for(drive.submit(IoRequest::flush())).await;
            context.sleep_ns(10_000_000).await;
        }
    });
}

#[test]
fn a_busy_drive_names_its_holder_until_that_ends() {
    let directory = disk_directory();
    let path = make(directory.path(), "drive.img", MIB);
    let mut child = hold_in_other_process(&path);
    match open_error(&path) {
        OpenError::Busy { holder: Holder::Process { pid, name }, .. } => {
            assert_eq!(pid, child.id());
            assert!(!name.is_empty());
        }
        other => panic!("{other}"),
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
    let executor = RealExecutor::new().expect("io_uring");
    executor.open_drive(&path, &OpenOptions::default()).expect("free again");
}

#[test]
fn vanished_drives_are_found() {
    let directory = disk_directory();
    let executor = RealExecutor::new().expect("io_uring");
    let drive = open_new(&executor, directory.path(), MIB);
    let path = drive.path().to_owned();
    still_there(&drive).expect("there");

    std::fs::rename(&path, directory.path().join("elsewhere")).expect("moved");
    assert!(matches!(still_there(&drive), Err(Vanished::Removed)));
    let late = executor.block_on(drive.submit(IoRequest::flush())).expect_err("gone");
    assert_eq!(late.kind, DriveErrorKind::Gone);
    drop(drive);

    let drive = open_new(&executor, directory.path(), MIB);
    std::fs::remove_file(&path).expect("removed");
    make(directory.path(), "drive.img", MIB);
    assert!(matches!(still_there(&drive), Err(Vanished::Replaced)));
    drop(drive);

    let drive = executor.open_drive(&path, &OpenOptions::default()).expect("opens");
    std::fs::File::options().write(true).open(&path).and_then(|file| file.set_len(5000)).expect("cut");
    assert!(matches!(still_there(&drive), Err(Vanished::Truncated { now_bytes: 5000 })));
    assert!(executor.block_on(drive.submit(IoRequest::flush())).is_err());
}

#[test]
fn drive_files_are_created_whole_or_not_at_all() {
    for directory in directories() {
        let path = directory.path().join("drive.img");
        let sparse = CreateOptions::new(4 * MIB);
        create_drive_file(&path, &sparse).expect("made");
        assert_eq!(std::fs::metadata(&path).expect("a file").len(), 4 * MIB);
        assert!(matches!(create_drive_file(&path, &sparse), Err(CreateError::Exists { .. })));

        std::fs::write(&path, b"old").expect("written");
        let allocated = CreateOptions { allocate: true, replace_existing: true, ..sparse };
        create_drive_file(&path, &allocated).expect("made");
        let blocks = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).expect("a file"));
        assert!(blocks * 512 >= 4 * MIB, "only {blocks} sectors allocated");
        assert!(std::fs::read(&path).expect("a file").iter().all(|byte| *byte == 0));

        for size_bytes in [0, 4095, 1_000_000] {
            let odd = CreateOptions::new(size_bytes);
            let error = create_drive_file(&directory.path().join("odd"), &odd);
            assert!(matches!(error, Err(CreateError::BadSize { .. })));
        }
        let free_bytes = free_space_bytes(directory.path()).expect("known");
        let huge_bytes = (2 * free_bytes).next_multiple_of(4096);
        for allocate in [false, true] {
            // Overcommitting is for sparse files; an allocated one must fit.
            let huge = CreateOptions { allocate, overcommit: allocate, ..CreateOptions::new(huge_bytes) };
            let error = create_drive_file(&directory.path().join("huge"), &huge).expect_err("does not fit");
            assert!(matches!(error, CreateError::NoSpace { .. }), "{error}");
            assert!(error.hint().is_some());
        }
        let names: Vec<_> = directory.path().read_dir().expect("listed").collect();
        assert_eq!(names.len(), 1, "failures left files behind: {names:?}");
    }
    let error = create_drive_file(Path::new("/nonexistent/drive.img"), &CreateOptions::new(MIB));
    assert!(matches!(error, Err(CreateError::Io { .. })));
}

#[test]
fn sparse_drive_files_may_exceed_the_disk() {
    let directory = disk_directory();
    let path = directory.path().join("drive.img");
    let huge = CreateOptions { overcommit: true, ..CreateOptions::new(4_000_000_000_000 / 4096 * 4096) };
    create_drive_file(&path, &huge).expect("made");
    let executor = RealExecutor::new().expect("io_uring");
    let drive = executor.open_drive(&path, &OpenOptions::default()).expect("opens");
    let end = drive.info().capacity_bytes - 4096;
    kit::write(&executor, &*drive, end, &[9; 4096], false).expect("written");
    assert_eq!(kit::read(&executor, &*drive, end, 4096).expect("read"), vec![9; 4096]);
}

#[test]
fn the_pace_stays_with_the_file() {
    let directory = disk_directory();
    let path = make(directory.path(), "drive.img", MIB);
    assert_eq!(pace_attribute(&path), None);
    set_pace_attribute(&path, "180MB/s,400iops").expect("stored");
    set_pace_attribute(&path, "200MB/s").expect("replaced");
    assert_eq!(pace_attribute(&path).as_deref(), Some("200MB/s"));
    let moved = directory.path().join("moved");
    std::fs::rename(&path, &moved).expect("moved");
    assert_eq!(pace_attribute(&moved).as_deref(), Some("200MB/s"));
    clear_pace_attribute(&moved).expect("cleared");
    clear_pace_attribute(&moved).expect("nothing left to clear");
    assert_eq!(pace_attribute(&moved), None);
    assert_eq!(pace_attribute(&path), None, "no such file");
    // Devices have no attributes of this kind.
    let error = set_pace_attribute(Path::new("/dev/null"), "1MB/s").expect_err("refused");
    assert!(matches!(error, AttributeError::Unsupported { .. }), "{error}");
    assert!(matches!(set_pace_attribute(&path, "1MB/s"), Err(AttributeError::Io { .. })));
    assert!(set_pace_attribute(&moved, &"x".repeat(10_000)).is_err());
}

#[test]
fn use_of_the_page_cache_is_reported() {
    let directory = disk_directory();
    // A ramfs has no direct I/O.
    if let Err(error) = kit::mount(directory.path(), c"ramfs", c"") {
        println!("skipped: a file system without direct I/O could not be mounted: {error}");
        return;
    }
    let executor = RealExecutor::new().expect("io_uring");
    let drive = open_new(&executor, directory.path(), MIB);
    assert!(!drive.is_direct());
    let [Notice::PageCache { path }] = drive.notices() else { panic!("{:?}", drive.notices()) };
    assert_eq!(path, drive.path());
    assert!(drive.notices()[0].to_string().contains("page cache"));
    let bytes = kit::contents(3, 100 * 512);
    kit::write(&executor, &*drive, 512, &bytes, true).expect("written");
    assert!(kit::read(&executor, &*drive, 512, bytes.len()).expect("read") == bytes);
    // No fallocate of any kind on ramfs: zeros are written, and a discard may do nothing.
    let (from, length) = (1024, 90 * 512);
    kit::range(&executor, &*drive, stripewise_drive::Operation::WriteZeroes, from, length).expect("zeroed");
    let after = kit::read(&executor, &*drive, 512, bytes.len()).expect("read");
    assert!(after[512..512 + length as usize].iter().all(|byte| *byte == 0));
    assert!(after[..512] == bytes[..512] && after[512 + length as usize..] == bytes[512 + length as usize..]);
    kit::range(&executor, &*drive, stripewise_drive::Operation::Discard, 0, MIB).expect("advice");
}
