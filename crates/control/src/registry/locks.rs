//! Finding the process that holds a lock, from the kernel's list of locks. The contents of the file
//! are no evidence, as their writer may have exited.
//!
//! Expected faults: an unreadable or malformed list, a holder that has just exited, one in another
//! PID namespace (listed without a number).

use std::fmt;
use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// A process that holds a lock.
pub(super) struct LockHolder {
    /// Process id.
    pub process: u32,
    /// Command name.
    name: Option<String>,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "process {} ({name})", self.process),
            None => write!(f, "process {}", self.process),
        }
    }
}

/// Returns the process that holds the lock of a file.
pub(super) fn holder_of(file: &File) -> Option<LockHolder> {
    let found = file.metadata().ok()?;
    let process = holder_in(&std::fs::read_to_string("/proc/locks").ok()?, found.dev(), found.ino())?;
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).ok();
    Some(LockHolder { process, name: name.map(|name| name.trim().to_owned()) })
}

/// Finds the holder in lines such as `1: FLOCK  ADVISORY  WRITE 4711 fe:01:262148 0 EOF`; waiters
/// have `->` after the line's number.
fn holder_in(list: &str, device: u64, inode: u64) -> Option<u32> {
    let [major, minor] = [(device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & 0xfff00)];
    let place = format!("{major:02x}:{minor:02x}:{inode}");
    let mut lines = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let holder =
        lines.find(|words| words.get(1) == Some(&"FLOCK") && words.get(5) == Some(&place.as_str()))?;
    holder[4].parse().ok().filter(|&process| process > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_holder_is_found_among_locks_and_waiters() {
        let list = "1: POSIX  ADVISORY  READ 11 fe:01:7 128 128\n\
                    2: FLOCK  ADVISORY  WRITE 12 fe:01:8 0 EOF\n\
                    2: -> FLOCK  ADVISORY  WRITE 13 fe:01:9 0 EOF\n\
                    3: FLOCK  ADVISORY  WRITE 14 fe:01:9 0 EOF\n";
        let device = 0xfe01;
        assert_eq!(holder_in(list, device, 9), Some(14));
        assert_eq!(holder_in(list, device, 8), Some(12));
        assert_eq!(holder_in(list, device, 7), None, "another kind of lock");
        assert_eq!(holder_in("rubbish", device, 9), None);
    }

    #[test]
    fn a_lock_of_this_process_is_found() {
        let file = tempfile::tempfile().expect("a file");
        assert!(holder_of(&file).is_none());
        file.lock().expect("locked");
        assert_eq!(holder_of(&file).expect("held").process, std::process::id());
    }
}
