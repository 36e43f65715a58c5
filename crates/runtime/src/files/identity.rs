//! Identity of the drive at a path, and the check that it is still the drive that was opened.
//!
//! Expected faults: two paths to one file or device (links, other names), a file that is unlinked,
//! replaced by another of the same name, or truncated while it is open, and a device node that is
//! reassigned to another device.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Identity of a file or block device, independent of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DriveIdentity {
    /// A regular file: the file system's device number and the file's inode number.
    File {
        /// The file system's device number.
        device: u64,
        /// The inode number there.
        inode: u64,
    },
    /// A block device, by its own device number.
    BlockDevice {
        /// The device number.
        device: u64,
    },
}

/// Reason that an open drive counts as lost, although reads of it may still work.
#[derive(Debug, thiserror::Error)]
pub enum Vanished {
    /// Its path no longer exists.
    #[error("it was removed")]
    Removed,
    /// Another file or device is at its path.
    #[error("another file or device has taken its path")]
    Replaced,
    /// It is smaller than when it was opened.
    #[error("it was truncated to {now_bytes} bytes")]
    Truncated {
        /// Current length, in bytes.
        now_bytes: u64,
    },
    /// Its path is inaccessible.
    #[error("its path is inaccessible")]
    Unreachable(#[source] std::io::Error),
}

impl DriveIdentity {
    /// Identity from `metadata`; `None` if it is neither a regular file nor a block device.
    pub(crate) fn of(metadata: &Metadata) -> Option<Self> {
        let kind = metadata.file_type();
        if kind.is_file() {
            Some(Self::File { device: metadata.dev(), inode: metadata.ino() })
        } else if kind.is_block_device() {
            Some(Self::BlockDevice { device: metadata.rdev() })
        } else {
            None
        }
    }

    /// Checks that `path` still is the drive that was opened; `device` is its open block device.
    fn look(self, device: Option<&File>, path: &Path, capacity_bytes: u64) -> Result<(), Vanished> {
        let at_path = path.metadata().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => Vanished::Removed,
            _ => Vanished::Unreachable(error),
        })?;
        if Self::of(&at_path) != Some(self) {
            return Err(Vanished::Replaced);
        }
        let now_bytes = match device {
            None => at_path.len(),
            Some(file) => crate::files::block_device::size_bytes(file).map_err(Vanished::Unreachable)?,
        };
        if now_bytes < capacity_bytes { Err(Vanished::Truncated { now_bytes }) } else { Ok(()) }
    }
}

/// A check that an open drive is still at its path. It waits for the path's file system, for as
/// long as that does not answer, and any thread can do it.
#[derive(Debug)]
pub struct PathCheck {
    pub(crate) identity: DriveIdentity,
    pub(crate) path: PathBuf,
    pub(crate) capacity_bytes: u64,
    /// The open block device, if it is one.
    pub(crate) device: Option<File>,
}

impl PathCheck {
    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the drive is still at its path and not shorter.
    ///
    /// # Errors
    /// The reason for which it is lost.
    pub fn run(&self) -> Result<(), Vanished> {
        self.identity.look(self.device.as_ref(), &self.path, self.capacity_bytes)
    }
}
