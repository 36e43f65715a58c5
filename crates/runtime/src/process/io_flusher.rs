//! Marking this process for the kernel as one that takes part in writeback.

/// Makes this thread, and those it starts, allocate memory without waiting for writeback. Writeback
/// of a file system on a served volume waits for this very process, so waiting would deadlock.
/// Requires root (CAP_SYS_RESOURCE) and Linux 5.6. False if the kernel refuses.
pub fn become_io_flusher() -> bool {
    /// From linux/prctl.h.
    const PR_SET_IO_FLUSHER: libc::c_int = 57;
    // SAFETY: sets a property of this thread; no memory is involved.
    unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1 as libc::c_ulong, 0, 0, 0) == 0 }
}
