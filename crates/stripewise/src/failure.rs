//! How the process ends, and what that tells scripts; failures are the library's, and are shown by
//! the printer in one style: what, where, why, then what to do about it.
//!
//! ```text
//! error: cannot create pool `tank`: /disks/drive0.img holds an ext4 file system
//! hint: add --force to overwrite it; everything in it would be lost
//! ```

pub(crate) use stripewise_control::failure::{Failure, Reason, Result, chain, system_text};

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Success,
    /// Could not be done.
    Failure,
    /// Could not be done, since what was named is not there.
    Missing,
    /// Could not be done, since too much else is being done.
    Busy,
    /// Not done, since the caller's role does not permit it.
    Forbidden,
    /// The command line itself is wrong.
    Usage,
    /// `pool status` alone: works, but degraded.
    Degraded,
}

impl Exit {
    /// What a process means that ended with this code.
    pub(crate) fn of_code(code: u8) -> Self {
        match code {
            0 => Self::Success,
            2 => Self::Usage,
            3 => Self::Degraded,
            _ => Self::Failure,
        }
    }

    /// How a process ends that failed so.
    pub(crate) fn of(failure: &Failure) -> Self {
        match failure.reason {
            Reason::ReaderLeft => Self::Success,
            Reason::Missing => Self::Missing,
            Reason::Busy => Self::Busy,
            Reason::Usage => Self::Usage,
            Reason::Forbidden => Self::Forbidden,
            Reason::Failed | Reason::Denied | Reason::TakenAt(_) | Reason::CallerLeft => Self::Failure,
        }
    }

    /// The process's exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure | Self::Missing | Self::Busy | Self::Forbidden => 1,
            Self::Usage => 2,
            Self::Degraded => 3,
        }
    }
}
