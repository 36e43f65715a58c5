//! The exit codes of the process. Failures are the library's; the printer shows them in one style:
//! what, where, why, then the next step.
//!
//! ```text
//! error: cannot create pool `tank`: /disks/drive0.img holds an ext4 file system
//! hint: add --force to overwrite it; everything in it would be lost
//! ```

pub(crate) use stripewise_control::failure::{Failure, Reason, Result, chain, pool_failure, system_text};

/// The outcome of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Success,
    /// The operation failed.
    Failure,
    /// The operation failed, since the named object does not exist.
    Missing,
    /// The operation failed, since too many others are running.
    Busy,
    /// The caller's role does not permit the operation.
    Forbidden,
    /// The command line itself is invalid.
    Usage,
    /// `pool status` only: the pool works, but is degraded.
    Degraded,
}

impl Exit {
    /// The outcome for an exit code.
    pub(crate) fn of_code(code: u8) -> Self {
        match code {
            0 => Self::Success,
            2 => Self::Usage,
            3 => Self::Degraded,
            _ => Self::Failure,
        }
    }

    /// The outcome for a failure.
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

    /// The exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failure | Self::Missing | Self::Busy | Self::Forbidden => 1,
            Self::Usage => 2,
            Self::Degraded => 3,
        }
    }
}
