//! Mounts for the time of a test.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use super::Sandbox;
use super::daemon::{Process, until};
use super::programs::{program, succeeds};

/// A mounting process. Its mounts are removed on drop, also after a failed test.
pub struct Mount {
    pub process: Process,
    pub folder: PathBuf,
    sandbox: PathBuf,
}

impl Mount {
    /// Starts `stripewise WORDS`, which mounts at @m, and waits until it is ready.
    pub fn start(sandbox: &Sandbox, words: &str) -> Self {
        Self::start_at(sandbox, words, &sandbox.path("m"))
    }

    /// Starts `stripewise WORDS`, which mounts at `folder`, and waits until it is ready.
    pub fn start_at(sandbox: &Sandbox, words: &str, folder: &Path) -> Self {
        std::fs::create_dir_all(folder).expect("made");
        let process = Process::start(sandbox, words);
        let mut mount = Self { process, folder: folder.to_owned(), sandbox: sandbox.path("") };
        mount.process.expect_ready();
        mount
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn open(&self, name: &str) -> File {
        OpenOptions::new().read(true).write(true).open(self.file(name)).expect("it can be opened")
    }

    /// Stops the process with SIGINT or SIGTERM. Returns its standard error.
    pub fn end(mut self) -> String {
        self.process.signal("-TERM");
        let said = self.process.expect_end();
        assert!(!is_mounted(&self.folder), "{said}");
        said
    }

    /// Kills the process; its mount stays, dead.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Waits until the process exits after an unmount by another process. Returns its standard
    /// error.
    pub fn ends(mut self) -> String {
        self.process.expect_end()
    }

    /// Removes the mounts of a killed process, and waits until the kernel releases its loop device:
    /// the mount namespace of another test may hold it a moment longer.
    pub fn unmount(&self) {
        succeeds(&["umount", &self.folder.display().to_string()]);
        until("the loop device is free", || self.loop_devices().is_empty());
    }

    /// Loop devices on files of the sandbox.
    fn loop_devices(&self) -> Vec<String> {
        let sandbox = self.sandbox.display().to_string();
        let listed = program(&["losetup", "--list", "--noheadings"]).stdout;
        let listed = String::from_utf8_lossy(&listed);
        let ours = listed.lines().filter(|line| line.contains(&sandbox));
        ours.filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
    }
}

/// True if `folder` is a mount point.
pub fn is_mounted(folder: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("readable");
    table.lines().any(|line| line.split(' ').nth(4).is_some_and(|place| Path::new(place) == folder))
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.process.kill();
        // The last mounts first: later mounts are further down in the table.
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let places = table.lines().rev().filter_map(|line| line.split(' ').nth(4));
        let is_ours = |place: &&str| {
            let place = Path::new(place);
            place.starts_with(&self.sandbox) || place == self.folder
        };
        for place in places.filter(is_ours) {
            program(&["umount", "--lazy", place]);
        }
        for device in self.loop_devices() {
            program(&["losetup", "--detach", &device]);
        }
    }
}
