//! Creation of files for file-backed drives.
//!
//! Expected faults: an existing file, too little space (checked beforehand, and again while
//! allocating), no permission, a size that is not a multiple of a block, and file systems without
//! preallocation (zeros are written instead). The file of a failed creation is removed.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Mode of the file: only its owner can read and write it.
const OWNER_ONLY: u32 = 0o600;

/// Options for creating a drive's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateOptions {
    /// Size of the drive, in bytes: a multiple of 4096.
    pub size_bytes: u64,
    /// True to preallocate the space, so that it cannot run out; otherwise the file is sparse.
    pub allocate: bool,
    /// True to replace an existing file, which is an error otherwise.
    pub replace_existing: bool,
    /// True to skip the check of free space for a sparse file.
    pub overcommit: bool,
}

impl CreateOptions {
    /// A new sparse file of `size_bytes`, with a check of free space.
    pub fn new(size_bytes: u64) -> Self {
        Self { size_bytes, allocate: false, replace_existing: false, overcommit: false }
    }
}

/// An error in creating a drive's file.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The path exists already.
    #[error("{}: a file of this name exists already", path.display())]
    Exists {
        /// Requested path.
        path: PathBuf,
    },
    /// The file system has less free space than the drive needs.
    #[error("{}: not enough space for a drive of {needed_bytes} bytes: {free_bytes} bytes are free", path.display())]
    NoSpace {
        /// Requested path.
        path: PathBuf,
        /// Size of the drive, in bytes.
        needed_bytes: u64,
        /// Free space, in bytes.
        free_bytes: u64,
    },
    /// The size is zero or not a multiple of 4096.
    #[error("{}: {size_bytes} bytes is not a valid drive size: it must be a multiple of 4096 and not zero", path.display())]
    BadSize {
        /// Requested path.
        path: PathBuf,
        /// Requested size, in bytes.
        size_bytes: u64,
    },
    /// Any other error of the system.
    #[error("{}: {action} failed", path.display())]
    Io {
        /// Requested path.
        path: PathBuf,
        /// The failed operation.
        action: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}

impl CreateError {
    fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), action, source }
    }

    /// Suggested remedy, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Exists { .. } => Some("choose another directory, or remove the file first"),
            Self::NoSpace { .. } => Some("create smaller or fewer drives, or use another file system"),
            Self::BadSize { .. } | Self::Io { .. } => None,
        }
    }
}

/// Free space for this user on the file system of `path` (which must exist), in bytes; `u64::MAX`
/// if the file system reports no size.
pub fn free_space_bytes(path: &Path) -> io::Result<u64> {
    let c_path =
        CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: statvfs fills the structure it is given; all-zero is valid; the path ends in a zero
    // byte.
    let (result, answer) = unsafe {
        let mut answer: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(c_path.as_ptr(), &raw mut answer), answer)
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    if answer.f_blocks == 0 {
        return Ok(u64::MAX);
    }
    // SAFETY: no memory is involved.
    let is_root = unsafe { libc::geteuid() } == 0;
    // Only root can use the reserved blocks.
    let blocks = if is_root { answer.f_bfree } else { answer.f_bavail };
    Ok(blocks.saturating_mul(answer.f_frsize))
}

/// Creates the file of a file-backed drive at `path`, durably. It reads as zeros.
pub fn create_drive_file(path: &Path, options: &CreateOptions) -> Result<(), CreateError> {
    let size_bytes = options.size_bytes;
    if size_bytes == 0 || !size_bytes.is_multiple_of(4096) {
        return Err(CreateError::BadSize { path: path.to_owned(), size_bytes });
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if path.symlink_metadata().is_ok() {
        if !options.replace_existing {
            return Err(CreateError::Exists { path: path.to_owned() });
        }
        // Removed, not truncated: a process that has the old file open keeps it.
        std::fs::remove_file(path).map_err(CreateError::io(path, "removing the old file"))?;
    }
    let free_bytes = free_space_bytes(directory)
        .map_err(CreateError::io(path, "reading the free space of its directory"))?;
    if free_bytes < size_bytes && (options.allocate || !options.overcommit) {
        return Err(CreateError::NoSpace { path: path.to_owned(), needed_bytes: size_bytes, free_bytes });
    }
    let file = File::options().read(true).write(true).create_new(true).mode(OWNER_ONLY).open(path).map_err(
        |source| match source.kind() {
            io::ErrorKind::AlreadyExists => CreateError::Exists { path: path.to_owned() },
            _ => CreateError::Io { path: path.to_owned(), action: "creating it", source },
        },
    )?;
    let filled = fill(&file, options).and_then(|()| file.sync_all()).and_then(|()| sync_directory(directory));
    filled.map_err(|source| {
        // Best effort: the error that matters is the first one.
        let _ = std::fs::remove_file(path);
        match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => CreateError::NoSpace {
                path: path.to_owned(),
                needed_bytes: size_bytes,
                free_bytes: free_space_bytes(directory).unwrap_or(0).min(size_bytes),
            },
            _ => CreateError::Io { path: path.to_owned(), action: "setting its size", source },
        }
    })
}

fn fill(file: &File, options: &CreateOptions) -> io::Result<()> {
    file.set_len(options.size_bytes)?;
    if !options.allocate {
        return Ok(());
    }
    let length =
        libc::off_t::try_from(options.size_bytes).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    loop {
        // SAFETY: an operation on an open descriptor; no memory is involved.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, length) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => return write_zeros(file, options.size_bytes),
            _ => return Err(error),
        }
    }
}

fn write_zeros(mut file: &File, size_bytes: u64) -> io::Result<()> {
    let zeros = vec![0_u8; 1 << 20];
    let mut rest = size_bytes;
    while rest > 0 {
        let length = rest.min(zeros.len() as u64);
        file.write_all(&zeros[..length as usize])?;
        rest -= length;
    }
    Ok(())
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
