//! An open drive: what is known of it, and what was found out by using it.
//!
//! Expected faults: a lock that the kernel would keep for a while after the file is closed.

use std::cell::Cell;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use stripewise_drive::{DriveInfo, DriveKind};

use crate::files::identity::DriveIdentity;

/// Something about an opened drive that its user should be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The file system has no direct I/O.
    PageCache {
        /// The drive's path.
        path: PathBuf,
    },
}

impl std::fmt::Display for Notice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PageCache { path } => write!(
                f,
                "{}: this file system has no direct I/O, so the page cache is used; speeds measured on it are partly \
                 those of memory",
                path.display()
            ),
        }
    }
}

/// How to zero a range; the fastest way that the file system or device has not refused yet, then
/// the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ZeroMethod {
    /// fallocate ZERO_RANGE.
    Range,
    /// fallocate PUNCH_HOLE, which on a file leaves zeros.
    Punch,
    /// Writing zeros.
    Write,
}

/// An open drive, shared by its handle and the requests in flight on it.
pub(crate) struct Opened {
    pub(crate) file: File,
    pub(crate) info: DriveInfo,
    /// Absolute, for looking whether the drive is still there.
    pub(crate) path: PathBuf,
    pub(crate) identity: DriveIdentity,
    pub(crate) notices: Vec<Notice>,
    pub(crate) read_only: bool,
    pub(crate) direct: bool,
    /// A file of a file system whose files are in memory: short transfers are over as soon as they
    /// are asked for.
    pub(crate) in_memory: bool,
    pub(crate) locked: bool,
    /// Buffers must begin at a multiple of this many bytes, and every piece be a multiple long.
    pub(crate) memory_alignment_bytes: usize,
    /// Found gone; stays so.
    pub(crate) gone: Cell<bool>,
    /// Discards have an effect, as far as is known.
    pub(crate) discards: Cell<bool>,
    pub(crate) zeroing: Cell<ZeroMethod>,
}

impl Opened {
    pub(crate) fn is_file(&self) -> bool {
        self.info.kind == DriveKind::File
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.locked {
            // Closing releases the lock too, but only when the kernel has dropped every reference
            // to the file, which io_uring may delay: the next process should not find a stale lock.
            // SAFETY: an operation on a descriptor that `self.file` owns; failure leaves the lock
            // to the close.
            unsafe { libc::flock(self.file.as_raw_fd(), libc::LOCK_UN) };
        }
    }
}
