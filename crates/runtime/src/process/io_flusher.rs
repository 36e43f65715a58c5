//! Telling the kernel that this process writes out other programs' memory.

/// From now on this thread, and those it starts, take memory without waiting for anything to be
/// written out: what is to be written may be waiting for this very process, when a file system
/// stands on what it serves. Needs root (CAP_SYS_RESOURCE); without, or before Linux 5.6, nothing
/// changes, and whether it did is returned.
pub fn become_io_flusher() -> bool {
    /// From linux/prctl.h.
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    // SAFETY: sets a property of this thread; no memory is involved.
    unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1 as libc::c_ulong, 0, 0, 0) == 0 }
}
