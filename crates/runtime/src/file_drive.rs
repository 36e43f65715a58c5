//! A drive over a file or a block device: what is known of it, and which requests can be refused
//! without the kernel.
//!
//! Expected faults: requests out of range, misaligned or forbidden (answered at once, nothing is
//! sent), and a drive that vanishes. A drive found gone stays gone: what comes back in its place is
//! another drive.
//!
//! Files in memory (tmpfs) are a kind of their own: io_uring has a kernel thread do what is asked
//! of them, so short requests are plain system calls instead (`uring.rs`).

use std::cell::Cell;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use stripewise_drive::{
    Completion, Drive, DriveError, DriveErrorKind, DriveInfo, DriveKind, IoRequest, Operation, completion,
};

use crate::identity::{DriveIdentity, Vanished};
use crate::open::Notice;
use crate::ring::Ring;
use crate::uring::DriveOp;

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
    pub(crate) ring: Rc<Ring>,
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

/// An open file or block device; closed, and its lock released, when it and its last request are
/// gone.
pub struct FileDrive(Rc<Opened>);

impl FileDrive {
    pub(crate) fn new(opened: Opened) -> Self {
        Self(Rc::new(opened))
    }

    /// Where the drive is, as an absolute path.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Which file or device this is, whatever its path: equal for two drives only if they are the
    /// same one.
    pub fn identity(&self) -> DriveIdentity {
        self.0.identity
    }

    /// Notices for the user who opened the drive.
    pub fn notices(&self) -> &[Notice] {
        &self.0.notices
    }

    /// Whether transfers bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.0.direct
    }

    /// Looks whether the drive is still at its path and as large as it was; a few microseconds,
    /// blocking. A drive found vanished answers every later request with [`DriveErrorKind::Gone`].
    pub fn still_there(&self) -> Result<(), Vanished> {
        let drive = &*self.0;
        let outcome = drive.identity.look(&drive.file, &drive.path, drive.info.capacity_bytes);
        if outcome.is_err() {
            drive.gone.set(true);
        }
        outcome
    }

    /// Whether it has vanished once. It then stays away, also if its file or device is back; open
    /// it again to use that.
    pub fn is_gone(&self) -> bool {
        self.0.gone.get()
    }

    /// What can be said of a request without the kernel: `Ok(true)` if there is nothing to do.
    fn precheck(&self, request: &IoRequest) -> Result<bool, DriveError> {
        let drive = &*self.0;
        let fail = |kind| Err(request.error(&drive.info.label, kind, None));
        if drive.gone.get() || drive.ring.is_closed() {
            return fail(DriveErrorKind::Gone);
        }
        request.check(&drive.info)?;
        let transfers = match request.operation {
            Operation::Flush => return Ok(drive.read_only),
            Operation::Read => true,
            _ if drive.read_only => return fail(DriveErrorKind::Denied),
            Operation::Write { .. } => true,
            Operation::Discard | Operation::WriteZeroes => false,
        };
        if transfers {
            let mut total_bytes = 0;
            for segment in &request.segments {
                let memory = segment.as_ptr().expect("phantom buffers are for models, not for real drives");
                if (memory.as_ptr().addr() | segment.len()) & (drive.memory_alignment_bytes - 1) != 0 {
                    return fail(DriveErrorKind::Misaligned);
                }
                total_bytes += segment.len() as u64;
            }
            assert_eq!(total_bytes, request.length_bytes, "a request's segments cover its length");
        }
        Ok(request.length_bytes == 0 || (request.operation == Operation::Discard && !drive.discards.get()))
    }
}

impl Drive for FileDrive {
    fn info(&self) -> &DriveInfo {
        &self.0.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        match self.precheck(&request) {
            Err(error) => Completion::ready(Err(error)),
            Ok(true) => Completion::ready(Ok(())),
            Ok(false) => {
                let (sender, completion) = completion();
                self.0.ring.start(DriveOp::new(self.0.clone(), request, sender));
                completion
            }
        }
    }
}
