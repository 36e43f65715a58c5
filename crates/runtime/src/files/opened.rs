//! An open drive: what is known of it, and what was found out by using it.
//!
//! Expected faults: a lock that the kernel would keep for a while after the file is closed; a file
//! that another program cuts short, or a device that shrinks, while it is in use.
//!
//! **Cut files.** A write beyond the end of a file that was cut lengthens it again, and what lies
//! between reads as zeros. A drive's own writes do not give the file its full length back, except
//! one of the very last block. So a file that is shorter than the drive was cut, whatever was
//! written since, and its length is compared:
//!
//! - when a write or a flush is answered, and when a read is answered while writes are under way:
//!   once for all answers that are there together, since the requests were carried out before;
//!   short writes of files in memory wait for the next read, forced write or flush;
//! - before a write of the last block.
//!
//! A file that another program cuts *and* lengthens again between two looks, or in the moment
//! between the look and a write of the last block, is not recognised.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use stripewise_drive::{DriveErrorKind, DriveInfo, DriveKind};

use crate::files::block_device;
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
    /// Found gone or cut short; stays so.
    pub(crate) lost: Cell<Option<DriveErrorKind>>,
    /// Requests that are not answered and may lengthen a file that was cut.
    pub(crate) lengthening: Cell<u32>,
    /// A write was answered since the length was compared.
    pub(crate) uncompared: Cell<bool>,
    /// The turn of the ring ([`Opened::is_lost`]) in which the length was compared last.
    pub(crate) compared_turn: Cell<u64>,
    /// Discards have an effect, as far as is known.
    pub(crate) discards: Cell<bool>,
    pub(crate) zeroing: Cell<ZeroMethod>,
}

impl Opened {
    pub(crate) fn is_file(&self) -> bool {
        self.info.kind == DriveKind::File
    }

    /// Looks whether the file or device is shorter than the drive, or its length is not to be had:
    /// then it is lost. Answers that the ring takes in one turn belong to requests that were
    /// carried out before, so one look is enough for them; turn 0 looks always.
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

    /// The drive answers every later request with this kind, unless it is lost already.
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
