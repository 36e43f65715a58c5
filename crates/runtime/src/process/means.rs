//! Errors that come of this process's own rights and limits, whatever they were met at.

use std::io;

/// Whether an error says that this process or the system has no descriptor or memory left, not that
/// anything is wrong with what was asked for.
pub fn is_out_of_means(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// Whether permissions keep this process from nothing.
pub(crate) fn is_superuser() -> bool {
    // SAFETY: a system call without arguments that cannot fail.
    unsafe { libc::geteuid() == 0 }
}
