//! An open file or device, and its lock.
//!
//! Expected faults: a lock that the kernel would keep for a while after the file is closed; a file
//! system whose server does not answer when the file is closed.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::AsRawFd;

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
