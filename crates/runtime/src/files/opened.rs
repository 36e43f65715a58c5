//! An open drive: its properties, and its state as found in use. `common.rs` has what its openings
//! on several threads have in common.
//!
//! Expected faults: a file that another program truncates, or a device that shrinks, while it is in
//! use.
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
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;

use stripewise_drive::{DriveErrorKind, DriveInfo, DriveKind};

use crate::files::block_device;
use crate::files::common::{Common, Lengthening};
use crate::files::identity::DriveIdentity;
use crate::files::open_handle::OpenHandle;

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
    /// Shared with the drive's openings on other threads.
    pub(crate) common: Arc<Common>,
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
    /// Unanswered requests of this opening that may lengthen a truncated file.
    pub(crate) lengthening: Lengthening,
    /// The turn of the ring ([`Opened::is_lost`]) in which the length was last compared.
    pub(crate) compared_turn: Cell<u64>,
    /// Discards are supported, as far as known.
    pub(crate) discards: Cell<bool>,
    pub(crate) zeroing: Cell<ZeroMethod>,
}

/// An open drive that another thread is about to open once more.
pub(crate) struct OpenedAgain {
    common: Arc<Common>,
    info: DriveInfo,
    path: PathBuf,
    identity: DriveIdentity,
    notices: Vec<Notice>,
    read_only: bool,
    direct: bool,
    in_memory: bool,
    memory_alignment_bytes: usize,
}

impl OpenedAgain {
    /// The drive, on the calling thread.
    pub(crate) fn open(self) -> Opened {
        let Self {
            common,
            info,
            path,
            identity,
            notices,
            read_only,
            direct,
            in_memory,
            memory_alignment_bytes,
        } = self;
        Opened {
            lengthening: common.opening(),
            common,
            info,
            path,
            identity,
            notices,
            read_only,
            direct,
            in_memory,
            memory_alignment_bytes,
            compared_turn: Cell::new(0),
            discards: Cell::new(true),
            zeroing: Cell::new(ZeroMethod::Range),
        }
    }
}

impl Opened {
    /// The file or device.
    pub(crate) fn file(&self) -> &OpenHandle {
        &self.common.file
    }

    /// Opens the drive once more, for another thread.
    pub(crate) fn again(&self) -> OpenedAgain {
        OpenedAgain {
            common: self.common.clone(),
            info: self.info.clone(),
            path: self.path.clone(),
            identity: self.identity,
            notices: self.notices.clone(),
            read_only: self.read_only,
            direct: self.direct,
            in_memory: self.in_memory,
            memory_alignment_bytes: self.memory_alignment_bytes,
        }
    }

    /// True if a request may have lengthened the file since its length was last compared.
    pub(crate) fn may_have_grown(&self) -> bool {
        self.common.may_have_grown(&self.lengthening)
    }

    pub(crate) fn is_file(&self) -> bool {
        self.info.kind == DriveKind::File
    }

    /// Checks the length: the drive is lost if its file or device is shorter than the drive, or the
    /// length cannot be read. Completions that the ring collects in one turn belong to requests
    /// that were executed before, so one check is enough for them; turn 0 always checks.
    pub(crate) fn is_lost(&self, turn: u64) -> bool {
        if self.common.lost().is_none() && (turn == 0 || self.compared_turn.replace(turn) != turn) {
            self.common.note_compared();
            match self.length_bytes() {
                Ok(length) if length >= self.info.capacity_bytes => {}
                Ok(_) => self.lose(DriveErrorKind::Cut),
                Err(_) => self.lose(DriveErrorKind::Gone),
            }
        }
        self.common.lost().is_some()
    }

    /// Marks the drive as lost.
    pub(crate) fn lose(&self, kind: DriveErrorKind) {
        self.common.lose(kind);
    }

    fn length_bytes(&self) -> io::Result<u64> {
        if !self.is_file() {
            return block_device::size_bytes(self.file());
        }
        let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: the descriptor is open; the structure is all zeros, a valid value of it, and is
        // written only within its size.
        unsafe {
            if libc::fstat(self.file().as_raw_fd(), status.as_mut_ptr()) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(status.assume_init().st_size as u64)
        }
    }
}
