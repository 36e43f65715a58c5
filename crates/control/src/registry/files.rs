//! Files of the state folder: accessible to their owner only, and replaced atomically.
//!
//! Expected faults: a full disk, a process killed between writing and renaming.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Mode of all files in the folder: owner only.
const FILE_MODE: u32 = 0o600;

/// Replaces a file atomically and durably: after a crash either the old file or the new one exists.
pub fn replace_file(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    let temporary = temporary_name(path);
    let written = create_own(&temporary).and_then(|mut file| {
        file.write_all(contents)?;
        file.sync_all()
    });
    move_into_place(written, &temporary, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

/// As [`replace_file`], but not durable: does not wait for the disk.
pub(crate) fn write_beside(path: &Path, contents: &[u8]) -> std::io::Result<()> {
    let temporary = temporary_name(path);
    let written = create_own(&temporary).and_then(|mut file| file.write_all(contents));
    move_into_place(written, &temporary, path)
}

/// Options that open a file, or create it for its owner only.
pub(super) fn open_own() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).read(true).write(true).mode(FILE_MODE);
    options
}

fn create_own(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).truncate(true).write(true).mode(FILE_MODE).open(path)
}

fn temporary_name(path: &Path) -> PathBuf {
    path.with_extension(format!("new.{}", std::process::id()))
}

fn move_into_place(written: std::io::Result<()>, temporary: &Path, path: &Path) -> std::io::Result<()> {
    let moved = written.and_then(|()| std::fs::rename(temporary, path));
    if moved.is_err() {
        // Best effort: the error that matters is the one returned.
        let _ = std::fs::remove_file(temporary);
    }
    moved
}
