//! The pace of a file-backed drive, kept with the file itself as an extended attribute, so that
//! every later opening uses the same rates and no side file is needed.
//!
//! Expected faults: file systems without extended attributes (a clear error), block devices (which
//! have none of this kind), and attributes of other programs (used only if they are text).

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const NAME: &CStr = c"user.stripewise.pace";
/// Longer texts are not of ours.
const LIMIT_BYTES: usize = 256;

/// The pace could not be stored.
#[derive(Debug, thiserror::Error)]
pub enum AttributeError {
    /// The file system stores no such attributes.
    #[error("{}: this file system cannot store a drive's pace (no user extended attributes)", path.display())]
    Unsupported {
        /// The drive's file.
        path: PathBuf,
    },
    /// Anything else the system says.
    #[error("{}: the drive's pace could not be stored", path.display())]
    Io {
        /// The drive's file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl AttributeError {
    fn new(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.raw_os_error() {
            // EPERM: user attributes exist for regular files and directories only.
            Some(libc::EOPNOTSUPP | libc::EPERM | libc::ENOSYS) => Self::Unsupported { path },
            _ => Self::Io { path, source },
        }
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Stores `pace`, as its text, with the drive file at `path`.
pub fn set_pace_attribute(path: &Path, pace: &str) -> Result<(), AttributeError> {
    let fail = |error| AttributeError::new(path, error);
    if pace.len() > LIMIT_BYTES {
        return Err(fail(io::Error::from_raw_os_error(libc::E2BIG)));
    }
    let c_path = c_path(path).map_err(fail)?;
    // SAFETY: both strings end in a zero byte; the value is `pace.len()` bytes long; all live
    // through the call.
    let result =
        unsafe { libc::setxattr(c_path.as_ptr(), NAME.as_ptr(), pace.as_ptr().cast(), pace.len(), 0) };
    if result == 0 { Ok(()) } else { Err(fail(io::Error::last_os_error())) }
}

/// Removes a stored pace; none there is fine.
pub fn clear_pace_attribute(path: &Path) -> Result<(), AttributeError> {
    let c_path = c_path(path).map_err(|error| AttributeError::new(path, error))?;
    // SAFETY: both strings end in a zero byte and live through the call.
    if unsafe { libc::removexattr(c_path.as_ptr(), NAME.as_ptr()) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::ENODATA | libc::EOPNOTSUPP) => Ok(()),
        _ => Err(AttributeError::new(path, error)),
    }
}

/// The pace stored with the drive file at `path`; `None` where there is none, or none that can be
/// read.
pub fn pace_attribute(path: &Path) -> Option<String> {
    let c_path = c_path(path).ok()?;
    let mut value = [0_u8; LIMIT_BYTES];
    // SAFETY: both strings end in a zero byte; at most `value.len()` bytes are written to `value`.
    let length =
        unsafe { libc::getxattr(c_path.as_ptr(), NAME.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    let length = usize::try_from(length).ok()?;
    std::str::from_utf8(&value[..length]).ok().map(str::to_owned)
}
