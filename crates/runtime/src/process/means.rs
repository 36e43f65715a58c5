//! Errors caused by this process's own permissions and limits, for any operation.

use std::io;

/// True if an error says that this process or the system is out of descriptors or memory; the
/// object of the operation may be in order.
pub fn is_out_of_means(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
}

/// True if permissions do not restrict this process.
pub(crate) fn is_superuser() -> bool {
    // SAFETY: a system call without arguments that cannot fail.
    unsafe { libc::geteuid() == 0 }
}
