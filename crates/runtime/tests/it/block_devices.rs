//! Block-device drives, on loop devices over files. Needs root and loop devices; says so where it
//! must skip.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kit::{contents, disk_directory, range, read, run, still_there, write};
use stripewise_drive::{Drive, DriveErrorKind, DriveKind, IoRequest, Operation};
use stripewise_runtime::{
    CreateOptions, DriveIdentity, Holder, OpenError, OpenOptions, RealExecutor, Vanished, create_drive_file,
    drive_identity,
};

const MIB: u64 = 1 << 20;

/// A loop device, detached at the end.
pub struct LoopDevice(pub PathBuf);

impl LoopDevice {
    pub fn over(file: &Path, sector_bytes: u32) -> Option<Self> {
        let sector = format!("--sector-size={sector_bytes}");
        let output = Command::new("losetup").args(["--find", "--show", &sector]).arg(file).output();
        match output {
            Ok(output) if output.status.success() => {
                Some(Self(String::from_utf8(output.stdout).expect("a path").trim().into()))
            }
            Ok(output) => {
                println!("skipped: no loop device: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(error) => {
                println!("skipped: losetup cannot be run: {error}");
                None
            }
        }
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn a_block_device_is_a_drive() {
    let directory = disk_directory();
    for sector_bytes in [512, 4096] {
        let file = directory.path().join(format!("disk{sector_bytes}"));
        create_drive_file(&file, &CreateOptions::new(8 * MIB)).expect("made");
        let Some(device) = LoopDevice::over(&file, sector_bytes) else { return };
        let executor = RealExecutor::new().expect("io_uring");
        let drive = executor.open_drive(&device.0, &OpenOptions::default()).expect("opens");
        assert_eq!(drive.info().kind, DriveKind::BlockDevice);
        assert_eq!(drive.info().capacity_bytes, 8 * MIB);
        assert_eq!(drive.info().logical_block_bytes, sector_bytes);
        assert!(drive.is_direct());
        assert!(matches!(drive.identity(), DriveIdentity::BlockDevice { .. }));
        assert_eq!(drive_identity(&device.0).expect("a drive"), drive.identity());
        still_there(&drive).expect("there");

        let bytes = contents(u64::from(sector_bytes), 4 * MIB as usize);
        write(&executor, &*drive, MIB, &bytes, true).expect("written");
        assert!(read(&executor, &*drive, MIB, bytes.len()).expect("read") == bytes);
        run(&executor, &*drive, IoRequest::flush()).expect("flushed");
        range(&executor, &*drive, Operation::WriteZeroes, 2 * MIB, MIB).expect("zeroed");
        range(&executor, &*drive, Operation::Discard, 4 * MIB, MIB).expect("discarded");
        let after = read(&executor, &*drive, MIB, bytes.len()).expect("read");
        let (first, second) = (MIB as usize, 2 * MIB as usize);
        assert!(after[..first] == bytes[..first]);
        assert!(after[first..second].iter().all(|byte| *byte == 0));
        assert!(after[second..3 * first] == bytes[second..3 * first]);
        let half = run(
            &executor,
            &*drive,
            IoRequest::read(u64::from(sector_bytes / 2), stripewise_drive::Buffer::from_bytes(&[0; 4096])),
        );
        assert_eq!(half.expect_err("off the sectors").kind, DriveErrorKind::Misaligned);

        let twice = executor.open_drive(&device.0, &OpenOptions::default()).err().expect("claimed");
        assert!(matches!(twice, OpenError::Busy { holder: Holder::Kernel, .. }), "{twice}");
        drop(drive);
        executor.open_drive(&device.0, &OpenOptions::default()).expect("free again");
    }
}

/// Flushes that the kernel has sent to the device so far; `None` where it does not count them.
fn flushes(device: &Path) -> Option<u64> {
    let name = device.file_name()?.to_str()?;
    std::fs::read_to_string(format!("/sys/block/{name}/stat"))
        .ok()?
        .split_ascii_whitespace()
        .nth(15)?
        .parse()
        .ok()
}

#[test]
fn flushes_and_forced_writes_reach_the_device() {
    let directory = disk_directory();
    let file = directory.path().join("disk");
    create_drive_file(&file, &CreateOptions::new(8 * MIB)).expect("made");
    let Some(device) = LoopDevice::over(&file, 512) else { return };
    let Some(start) = flushes(&device.0) else {
        println!("skipped: the kernel does not count flushes");
        return;
    };
    let executor = RealExecutor::new().expect("io_uring");
    let drive = executor.open_drive(&device.0, &OpenOptions::default()).expect("opens");
    assert!(drive.info().volatile_cache, "a loop device caches in memory");
    let since = |before: u64| flushes(&device.0).expect("counted") - before;
    for round in 0..8 {
        write(&executor, &*drive, round * 4096, &[1; 4096], false).expect("written");
    }
    assert_eq!(since(start), 0, "plain writes were forced");
    for round in 0..8 {
        write(&executor, &*drive, round * 4096, &[2; 4096], true).expect("written");
    }
    assert!(since(start) >= 8, "8 forced writes gave {} flushes", since(start));
    let before = flushes(&device.0).expect("counted");
    run(&executor, &*drive, IoRequest::flush()).expect("flushed");
    assert_eq!(since(before), 1);
}

#[test]
fn a_failing_or_shrunk_device_is_reported() {
    let directory = disk_directory();
    let file = directory.path().join("disk");
    create_drive_file(&file, &CreateOptions::new(8 * MIB)).expect("made");
    let Some(device) = LoopDevice::over(&file, 512) else { return };
    let executor = RealExecutor::new().expect("io_uring");
    let drive = executor.open_drive(&device.0, &OpenOptions::default()).expect("opens");
    write(&executor, &*drive, 0, &contents(1, 8 * MIB as usize), true).expect("written");
    // The device keeps its size but has nothing behind its second half.
    let backing = std::fs::File::options().write(true).open(&file).expect("a file");
    backing.set_len(4 * MIB).expect("cut");
    let buffer = stripewise_drive::Buffer::from_bytes(&[0; 4096]);
    let error = run(&executor, &*drive, IoRequest::read(6 * MIB, buffer)).expect_err("nothing there");
    assert_eq!(error.kind, DriveErrorKind::Medium, "{error}");
    assert!(read(&executor, &*drive, 0, MIB as usize).expect("read") == contents(1, MIB as usize));
    still_there(&drive).expect("a medium error is no loss of the drive");

    // Now the device itself becomes smaller.
    let resized = Command::new("losetup").arg("--set-capacity").arg(&device.0).status().expect("losetup");
    assert!(resized.success());
    let buffer = stripewise_drive::Buffer::from_bytes(&[0; 4096]);
    let error = run(&executor, &*drive, IoRequest::read(6 * MIB, buffer)).expect_err("beyond the end");
    assert_eq!(error.kind, DriveErrorKind::Cut, "{error}");
    assert!(matches!(still_there(&drive), Err(Vanished::Truncated { now_bytes }) if now_bytes == 4 * MIB));
}
