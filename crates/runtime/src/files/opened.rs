//! An open drive: its properties, and its state as found in use.
//!
//! Expected faults: a lock that the kernel would keep for a while after the file is closed; a file
//! system whose server does not answer when the file is closed; a file that another program
//! truncates, or a device that shrinks, while it is in use.
//!
//! **Truncated files.** A write beyond the end of a truncated file lengthens it again, and the gap
//! reads as zeros. A drive's own writes do not give the file its full length back, except a write
//! of the very last block. So a file that is shorter than the drive was truncated, whatever was
//! written since, and its length is compared:
//!
//! - when a write or a flush completes, and when a read completes while writes are in flight: once
//!   for all completions that are collected together, since the requests were executed before;
//!   short writes of files in memory wait for the next read, FUA write or flush;
//! - before a write of the last block.
//!
//! A file that another program truncates *and* lengthens again between two checks, or between the
//! check and a write of the last block, is not detected.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use stripewise_drive::{DriveErrorKind, DriveInfo, DriveKind};

use crate::files::block_device;
use crate::files::identity::DriveIdentity;

/// A notice about an opened drive, for its user.
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
                "{}: this file system has no direct I/O, so the page cache is used; measured \
                 speeds are partly those of memory",
                path.display()
            ),
        }
    }
}

/// Methods of zeroing a range, fastest first; the first one is used that the file system or device
/// has not refused.
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
    pub(crate) file: OpenHandle,
    pub(crate) info: DriveInfo,
    /// Absolute, for checking that the drive is still there.
    pub(crate) path: PathBuf,
    pub(crate) identity: DriveIdentity,
    pub(crate) notices: Vec<Notice>,
    pub(crate) read_only: bool,
    pub(crate) direct: bool,
    /// The file lies on tmpfs: short transfers complete at once.
    pub(crate) in_memory: bool,
    /// Alignment of buffers, and of the length of each piece, in bytes.
    pub(crate) memory_alignment_bytes: usize,
    /// Set once the drive is found gone or truncated; stays set.
    pub(crate) lost: Cell<Option<DriveErrorKind>>,
    /// Number of unanswered requests that may lengthen a truncated file.
    pub(crate) lengthening: Cell<u32>,
    /// A write has completed since the length was last compared.
    pub(crate) uncompared: Cell<bool>,
    /// The turn of the ring ([`Opened::is_lost`]) in which the length was last compared.
    pub(crate) compared_turn: Cell<u64>,
    /// Discards are supported, as far as known.
    pub(crate) discards: Cell<bool>,
    pub(crate) zeroing: Cell<ZeroMethod>,
}

impl Opened {
    pub(crate) fn is_file(&self) -> bool {
        self.info.kind == DriveKind::File
    }

    /// Checks the length: the drive is lost if its file or device is shorter than the drive, or the
    /// length cannot be read. Completions that the ring collects in one turn belong to requests
    /// that were executed before, so one check is enough for them; turn 0 always checks.
    pub(crate) fn is_lost(&self, turn: u64) -> bool {
        if self.lost.get().is_none() && (turn == 0 || self.compared_turn.replace(turn) != turn) {
            self.uncompared.set(false);
            match self.length_bytes() {
                Ok(length) if length >= self.info.capacity_bytes => {}
                Ok(_) => self.lose(DriveErrorKind::Cut),
                Err(_) => self.lose(DriveErrorKind::Gone),
            }
        }
        self.lost.get().is_some()
    }

    /// Marks the drive as lost: later requests fail with this kind. The first kind counts.
    pub(crate) fn lose(&self, kind: DriveErrorKind) {
        self.lost.set(self.lost.get().or(Some(kind)));
    }

    fn length_bytes(&self) -> io::Result<u64> {
        if !self.is_file() {
            return block_device::size_bytes(&self.file);
        }
        let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: the descriptor is open; the structure is all zeros, a valid value of it, and is
        // written only within its size.
        unsafe {
            if libc::fstat(self.file.as_raw_fd(), status.as_mut_ptr()) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(status.assume_init().st_size as u64)
        }
    }
}

/// An open file or device, and its lock. On file systems of which each call may wait for a server,
/// a thread of its own releases both: the executor must not wait there.
#[derive(Debug)]
pub(crate) struct OpenHandle {
    file: ManuallyDrop<File>,
    is_locked: bool,
    may_wait: bool,
}

impl OpenHandle {
    /// `may_wait`: closing it may wait for a server.
    pub(crate) fn new(file: File, may_wait: bool) -> Self {
        Self { file: ManuallyDrop::new(file), is_locked: false, may_wait }
    }

    /// True if closing it may wait for a server.
    pub(crate) fn may_wait(&self) -> bool {
        self.may_wait
    }

    /// Records that its lock is taken.
    pub(crate) fn note_locked(&mut self) {
        self.is_locked = true;
    }
}

impl Deref for OpenHandle {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for OpenHandle {
    fn drop(&mut self) {
        // SAFETY: the value is dropped here, so that the file is not used after this.
        let file = unsafe { ManuallyDrop::take(&mut self.file) };
        let is_locked = self.is_locked;
        let close = move || {
            if is_locked {
                // Closing releases the lock too, but only when the kernel has dropped every
                // reference to the file, which io_uring may delay: the next process should not find
                // a stale lock.
                // SAFETY: an operation on a descriptor that `file` owns; failure leaves the lock to
                // the close.
                unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
            }
            drop(file);
        };
        match self.may_wait {
            // Without a thread the file is closed here.
            true => drop(std::thread::Builder::new().name("closes".to_owned()).spawn(close)),
            false => close(),
        }
    }
}
