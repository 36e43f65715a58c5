//! Set-ups for tests of real drives: directories on the available file systems, contents that
//! differ in every sector, and this test binary run as another process.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use stripewise_drive::{Buffer, Drive, IoRequest, IoResult, Operation};
use stripewise_runtime::{CreateOptions, FileDrive, OpenOptions, RealExecutor, Vanished, create_drive_file};
use tempfile::TempDir;

#[path = "../../../../../tests/contents.rs"]
mod contents;

pub use contents::contents;

/// A directory in the build's target directory, normally on a disk's file system.
pub fn disk_directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory")
}

/// Directories on the available file systems: disk, and memory if possible.
pub fn directories() -> Vec<TempDir> {
    let memory = tempfile::tempdir_in("/dev/shm");
    if memory.is_err() {
        println!("/dev/shm cannot be used: tested on disk only");
    }
    std::iter::once(disk_directory()).chain(memory).collect()
}

/// Makes a sparse drive file of `size_bytes`.
pub fn make(directory: &Path, name: &str, size_bytes: u64) -> PathBuf {
    let path = directory.join(name);
    create_drive_file(&path, &CreateOptions::new(size_bytes)).expect("room for a test drive");
    path
}

/// Makes and opens a drive of `size_bytes`.
pub fn open_new(executor: &RealExecutor, directory: &Path, size_bytes: u64) -> Rc<FileDrive> {
    let path = make(directory, "drive.img", size_bytes);
    executor.open_drive(&path, &OpenOptions::default()).expect("a new drive opens")
}

/// Checks that a drive is still at its path, as the thread of a daemon would.
pub fn still_there(drive: &FileDrive) -> Result<(), Vanished> {
    let outcome = drive.path_check().expect("a descriptor").run();
    drive.note_check(&outcome);
    outcome
}

/// Mounts a file system in memory at `path`, in this thread's own mount namespace.
pub fn mount(path: &Path, file_system: &CStr, options: &CStr) -> std::io::Result<()> {
    let path = std::ffi::CString::new(path.to_str().expect("a plain path")).expect("a plain path");
    let (nothing, flags) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
    let (none, options) = (c"none".as_ptr(), options.as_ptr().cast());
    // SAFETY: system calls with strings that end in a zero byte and live through the calls.
    let results = unsafe {
        [
            libc::unshare(libc::CLONE_NEWNS),
            libc::mount(nothing, c"/".as_ptr(), nothing, flags, nothing.cast()),
            libc::mount(none, path.as_ptr(), file_system.as_ptr(), 0, options),
        ]
    };
    if results.contains(&-1) { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Runs one request to its end.
pub fn run(executor: &RealExecutor, drive: &dyn Drive, request: IoRequest) -> IoResult {
    executor.block_on(drive.submit(request))
}

/// Writes bytes.
pub fn write(executor: &RealExecutor, drive: &dyn Drive, offset: u64, bytes: &[u8], fua: bool) -> IoResult {
    run(executor, drive, IoRequest::write(offset, Buffer::from_bytes(bytes), fua))
}

/// Reads bytes.
pub fn read(
    executor: &RealExecutor,
    drive: &dyn Drive,
    offset: u64,
    length: usize,
) -> Result<Vec<u8>, String> {
    let buffer = Buffer::from_bytes(&vec![0xEE; length]);
    run(executor, drive, IoRequest::read(offset, buffer.clone())).map_err(|error| error.to_string())?;
    Ok(buffer.to_vec())
}

/// Discards or zeroes a range.
pub fn range(
    executor: &RealExecutor,
    drive: &dyn Drive,
    operation: Operation,
    offset: u64,
    length: u64,
) -> IoResult {
    run(executor, drive, IoRequest::range(operation, offset, length))
}

/// This test binary as another process that runs only the test `name`, with `STRIPEWISE_TEST_PATH`
/// set to `path`. That test plays the other process's part only if the variable is set.
pub fn other_process(name: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a test binary"));
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env("STRIPEWISE_TEST_PATH", path);
    command
}

/// The path, in the other process.
pub fn path_of_this_other_process() -> Option<PathBuf> {
    std::env::var_os("STRIPEWISE_TEST_PATH").map(PathBuf::from)
}

/// Waits (5 s at most) until `condition` holds.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..500 {
        if condition() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("waited in vain: {what}");
}

/// Awaits a completion that must succeed.
pub async fn wait_for(completion: stripewise_drive::Completion) {
    completion.await.expect("a good answer");
}
