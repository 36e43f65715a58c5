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

/// Creates a file with a name that others may guess: whatever is there, as a link of another user,
/// is removed and not written to.
fn create_own(path: &Path) -> std::io::Result<File> {
    // Left by a killed process with the same process id.
    let _ = std::fs::remove_file(path);
    OpenOptions::new().create_new(true).write(true).mode(FILE_MODE).open(path)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_at_a_temporary_name_is_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, other) = (folder.path().join("report.html"), folder.path().join("other"));
        for write in [replace_file, write_beside] {
            std::fs::write(&other, "kept").expect("written");
            std::os::unix::fs::symlink(&other, temporary_name(&path)).expect("linked");
            write(&path, b"new").expect("written");
            assert_eq!(std::fs::read(&path).expect("there"), b"new");
            assert_eq!(std::fs::read(&other).expect("there"), b"kept");
        }
    }
}
