//! Temporary files of a measurement: one hidden folder, removed when it is dropped.
//!
//! Expects processes that are killed. A folder is locked while its process lives; the next
//! measurement in the same place removes folders without an owner.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Beginnings of the names of temporary files and folders, followed by a process id.
const PREFIXES: [&str; 3] = [".stripewise-lab-", ".stripewise-evaluate-", ".stripewise-predict-"];
/// Maximum number of folders of one process in one place.
const MOST_FOLDERS: u32 = 1000;

/// A folder for temporary files, locked by this process.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    _lock: File,
}

impl Scratch {
    /// Creates a folder in `parent`, and removes what killed processes left there.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn new(parent: &Path) -> io::Result<Self> {
        remove_abandoned(parent);
        for number in 0..MOST_FOLDERS {
            let path = parent.join(format!("{}{}-{number}", PREFIXES[0], std::process::id()));
            match std::fs::create_dir(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                made => made?,
            }
            if let Some(lock) = locked(&path)? {
                return Ok(Self { path, _lock: lock });
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Best effort: the next measurement in the same place tries again.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Locks a new folder. `None` if another process took it for abandoned before it was locked.
fn locked(path: &Path) -> io::Result<Option<File>> {
    let lock = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if let Err(TryLockError::WouldBlock) = lock.try_lock() {
        return Ok(None);
    }
    // A file system without locks never has abandoned folders removed.
    let is_there =
        std::fs::metadata(path).is_ok_and(|found| found.ino() == lock.metadata().map_or(0, |m| m.ino()));
    Ok(is_there.then_some(lock))
}

/// Removes the files and folders that killed processes left in `parent`.
pub fn remove_abandoned(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let Some((process, has_lock)) = entry.file_name().to_str().and_then(owner) else { continue };
        let Ok(kind) = entry.file_type() else { continue };
        // Opening a named pipe would wait for its writer.
        if !kind.is_dir() && !kind.is_file() {
            continue;
        }
        // Only folders of this version are locked from the beginning.
        let is_locked_kind = has_lock && kind.is_dir();
        if !is_locked_kind && Path::new(&format!("/proc/{process}")).exists() {
            continue;
        }
        let Ok(lock) = File::open(entry.path()) else { continue };
        if lock.try_lock().is_err() {
            continue;
        }
        // Best effort: it may belong to another user.
        let _ = match kind.is_dir() {
            true => std::fs::remove_dir_all(entry.path()),
            false => std::fs::remove_file(entry.path()),
        };
    }
}

/// Process id in the name of a temporary file, and true for the names that [`Scratch`] gives.
fn owner(name: &str) -> Option<(u32, bool)> {
    let rest = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix))?;
    let rest = rest.strip_suffix(".dat").or_else(|| rest.strip_suffix(".img")).unwrap_or(rest);
    match rest.split_once('-') {
        None => Some((rest.parse().ok()?, false)),
        Some((process, number)) => {
            number.parse::<u32>().ok()?;
            Some((process.parse().ok()?, name.ends_with(number)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process id that no process has.
    const NO_PROCESS: u32 = u32::MAX;

    #[test]
    fn leftovers_of_killed_runs_are_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: String| folder.path().join(name);
        let abandoned = at(format!(".stripewise-lab-{NO_PROCESS}-0"));
        let of_living = at(format!(".stripewise-lab-{}-7", std::process::id()));
        for left in [&abandoned, &of_living, &at(format!(".stripewise-predict-{NO_PROCESS}"))] {
            std::fs::create_dir(left).expect("made");
            std::fs::write(left.join("1"), "data").expect("written");
        }
        for name in ["lab-4294967295.dat", "evaluate-4294967295-3.img"] {
            std::fs::write(at(format!(".stripewise-{name}")), "data").expect("written");
        }
        let pipe = at(format!(".stripewise-evaluate-{NO_PROCESS}"));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
        assert!(made.success());
        let foreign = [at(".stripewise-lab-notes".into()), at("data".into()), pipe];
        foreign[..2].iter().for_each(|path| std::fs::write(path, "mine").expect("written"));
        let held = Scratch::new(folder.path()).expect("made");
        let other = Scratch::new(folder.path()).expect("made");
        assert!(held.path().is_dir() && other.path().is_dir(), "folders in use stay");
        assert!(!abandoned.exists() && !of_living.exists(), "folders without a lock are removed");
        assert!(foreign.iter().all(|path| path.exists()));
        drop((held, other));
        assert_eq!(std::fs::read_dir(folder.path()).expect("read").count(), foreign.len());
    }

    #[test]
    fn files_of_living_processes_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join(format!(".stripewise-evaluate-{}-0.img", std::process::id()));
        std::fs::write(&file, "data").expect("written");
        remove_abandoned(folder.path());
        assert!(file.exists());
    }
}
