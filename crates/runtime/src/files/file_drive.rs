//! A drive on a file or a block device, and the requests that can be answered without the kernel.
//!
//! Expected faults: requests out of range, misaligned or forbidden (answered at once, nothing is
//! sent), and a drive that vanishes or is truncated (`opened.rs`). A drive found gone stays gone:
//! whatever comes back at its path is another drive.
//!
//! Files in memory (tmpfs) are special: io_uring has a kernel thread serve them, so short requests
//! are plain system calls instead (`uring.rs`).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use stripewise_drive::{
    Completion, Drive, DriveError, DriveErrorKind, DriveInfo, IoRequest, OpenAgain, Operation, completion,
};

use crate::files::identity::{DriveIdentity, PathCheck, Vanished};
use crate::files::opened::{Notice, Opened};
use crate::files::small_file::OPEN_ANY_KIND;
use crate::ring::Ring;
use crate::ring::uring::{DriveOp, lengthens};

/// An open file or block device; closed, and its lock released, when it and its last request are
/// dropped.
pub struct FileDrive {
    ring: Rc<Ring>,
    opened: Rc<Opened>,
}

/// The file or device of an open drive, to be opened once more.
#[derive(Debug)]
pub struct DriveHandle {
    pub(super) file: File,
    path: PathBuf,
    identity: DriveIdentity,
}

impl DriveHandle {
    /// Opens it for reading through the page cache: the one that is open, whatever is at its path
    /// by now. Waits for its file system, for as long as that does not answer.
    ///
    /// # Errors
    /// The system's error; or, without /proc, another file at the path.
    pub fn open(&self) -> io::Result<File> {
        // Without /proc the path is all there is; what is there by now must be the drive.
        let of_this_process = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        let path = if of_this_process.exists() { &of_this_process } else { &self.path };
        let file = OpenOptions::new().read(true).custom_flags(OPEN_ANY_KIND).open(path)?;
        match DriveIdentity::of(&file.metadata()?) == Some(self.identity) {
            true => Ok(file),
            false => Err(io::Error::other("another file or device has taken its path")),
        }
    }
}

impl FileDrive {
    pub(crate) fn new(ring: Rc<Ring>, opened: Opened) -> Self {
        Self { ring, opened: Rc::new(opened) }
    }

    /// The drive's absolute path.
    pub fn path(&self) -> &Path {
        &self.opened.path
    }

    /// Identity of the file or device, independent of its path: equal for two drives only if they
    /// are the same one.
    pub fn identity(&self) -> DriveIdentity {
        self.opened.identity
    }

    /// The drive's file or device, for another thread to open once more.
    ///
    /// # Errors
    /// If no descriptor is available.
    pub fn handle(&self) -> io::Result<DriveHandle> {
        let drive = &*self.opened;
        Ok(DriveHandle {
            file: drive.file().try_clone()?,
            path: drive.path.clone(),
            identity: drive.identity,
        })
    }

    /// Notices for the user.
    pub fn notices(&self) -> &[Notice] {
        &self.opened.notices
    }

    /// True if its file system may wait for a server in each call.
    pub fn may_wait(&self) -> bool {
        self.opened.file().may_wait()
    }

    /// True if transfers bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.opened.direct
    }

    /// A check that the drive is still at its path and not shorter, for another thread. Its outcome
    /// goes to [`Self::note_check`].
    ///
    /// # Errors
    /// If no descriptor is available.
    pub fn path_check(&self) -> io::Result<PathCheck> {
        let drive = &*self.opened;
        let device = if drive.is_file() { None } else { Some(drive.file().try_clone()?) };
        let (identity, path) = (drive.identity, drive.path.clone());
        Ok(PathCheck { identity, path, capacity_bytes: drive.info.capacity_bytes, device })
    }

    /// Records the outcome of a check. A drive found gone answers every later request with
    /// [`DriveErrorKind::Gone`], or [`DriveErrorKind::Cut`] if it is shorter.
    pub fn note_check(&self, outcome: &Result<(), Vanished>) {
        if let Err(vanished) = outcome {
            self.opened.lose(match vanished {
                Vanished::Truncated { .. } => DriveErrorKind::Cut,
                _ => DriveErrorKind::Gone,
            });
        }
    }

    /// True if it was found gone or truncated. It then stays so, even if its file or device is
    /// back; open it again to use that.
    pub fn is_gone(&self) -> bool {
        self.opened.common.lost().is_some()
    }

    /// True if it was found shorter than when it was opened.
    pub fn is_cut(&self) -> bool {
        self.opened.common.lost() == Some(DriveErrorKind::Cut)
    }

    /// Checks a request without the kernel: `Ok(true)` if there is nothing to do.
    fn precheck(&self, request: &IoRequest) -> Result<bool, DriveError> {
        let drive = &*self.opened;
        let fail = |kind| Err(request.error(&drive.info.label, kind, None));
        if let Some(kind) = drive.common.lost() {
            return fail(kind);
        }
        if self.ring.is_closed() {
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
        let reaches_end = request.length_bytes > 0 && request.end_bytes() == drive.info.capacity_bytes;
        if lengthens(request.operation) && reaches_end && drive.is_lost(0) {
            return fail(drive.common.lost().unwrap_or(DriveErrorKind::Gone));
        }
        Ok(request.length_bytes == 0 || (request.operation == Operation::Discard && !drive.discards.get()))
    }
}

impl Drive for FileDrive {
    fn info(&self) -> &DriveInfo {
        &self.opened.info
    }

    fn submit(&self, request: IoRequest) -> Completion {
        match self.precheck(&request) {
            Err(error) => Completion::ready(Err(error)),
            Ok(true) => Completion::ready(Ok(())),
            Ok(false) => {
                let (sender, completion) = completion();
                self.ring.start(DriveOp::new(self.opened.clone(), request, sender));
                completion
            }
        }
    }

    fn for_another_thread(&self) -> Option<OpenAgain> {
        let again = self.opened.again();
        Some(Box::new(move || Rc::new(Self::new(Ring::running(), again.open()))))
    }
}
