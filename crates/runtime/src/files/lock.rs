//! Advisory locks that prevent a second open of a drive, by another process or the same one, and
//! the search for the holder of a lock.
//!
//! The locks are of `flock`, which belong to the open file: they end when it is closed, however the
//! process ends, and conflict within one process too. On block devices, udev respects them.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use crate::files::identity::DriveIdentity;

/// User of a drive, as far as the system reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// This process.
    ThisProcess,
    /// Another process.
    Process {
        /// Process id.
        pid: u32,
        /// Command name; empty if unknown.
        name: String,
    },
    /// A process that has ended, whose lock is about to be released.
    Dead,
    /// The kernel: a mount, another array, swap space.
    Kernel,
    /// Unknown to the system.
    Unknown,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ThisProcess => f.write_str("this very process"),
            Self::Process { pid, name } if name.is_empty() => write!(f, "process {pid}"),
            Self::Process { pid, name } => write!(f, "process {pid} ({name})"),
            Self::Dead => f.write_str("a process that has ended but still holds the lock"),
            Self::Kernel => f.write_str("the system"),
            Self::Unknown => f.write_str("another program"),
        }
    }
}

/// Takes the lock if it is free; `false` if it is held.
pub(crate) fn try_lock(file: &File, shared: bool) -> io::Result<bool> {
    let mode = if shared { libc::LOCK_SH } else { libc::LOCK_EX };
    // SAFETY: an operation on an open descriptor; no memory is involved.
    if unsafe { libc::flock(file.as_raw_fd(), mode | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EWOULDBLOCK) => Ok(false),
        _ => Err(error),
    }
}

/// Finds the holder of a `flock` on the drive in the kernel's list of locks.
pub(crate) fn holder(identity: DriveIdentity, file: &File) -> Holder {
    let (device, inode) = match identity {
        DriveIdentity::File { device, inode } => (device, inode),
        // The lock is on the device node's own inode.
        DriveIdentity::BlockDevice { .. } => match file.metadata() {
            Ok(metadata) => (metadata.dev(), metadata.ino()),
            Err(_) => return Holder::Unknown,
        },
    };
    let Ok(locks) = std::fs::read_to_string("/proc/locks") else { return Holder::Unknown };
    let Some(pid) = pid_of(&locks, device, inode) else { return Holder::Unknown };
    if pid == std::process::id() {
        return Holder::ThisProcess;
    }
    match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => Holder::Process { pid, name: name.trim().to_owned() },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Holder::Dead,
        Err(_) => Holder::Process { pid, name: String::new() },
    }
}

/// Process id in the line `N: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE START END` (major and
/// minor in hexadecimal) that names the inode. `None` for a process of another namespace, which is
/// listed as 0 or less.
fn pid_of(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let place = format!("{:02x}:{:02x}:{inode}", libc::major(device), libc::minor(device));
    locks.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let waiting = words.clone().next() == Some("->");
        if waiting || words.next() != Some("FLOCK") {
            return None;
        }
        let pid = words.nth(2)?;
        (words.next() == Some(place.as_str())).then(|| pid.parse().ok().filter(|pid| *pid > 0)).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found_among_other_locks_and_waiters() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF\n\
                     1: -> FLOCK  ADVISORY  WRITE 12 fe:00:77 0 EOF\n\
                     2: FLOCK  ADVISORY  READ  13 fe:00:78 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 14 fe:00:77 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE -1 08:11:79 0 EOF\n";
        let device = libc::makedev(0xfe, 0);
        assert_eq!(pid_of(locks, device, 77), Some(14));
        assert_eq!(pid_of(locks, device, 78), Some(13));
        assert_eq!(pid_of(locks, libc::makedev(8, 0x11), 79), None);
        assert_eq!(pid_of(locks, device, 7), None);
    }
}
