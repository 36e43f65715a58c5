//! Processes that this one started in a group of their own, and pipes to them that are not waited
//! for.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Ends every process of the group that the process of this number was started to lead.
pub fn end_process_group(leader: u32) {
    let Ok(leader) = libc::pid_t::try_from(leader) else { return };
    if leader > 1 {
        // SAFETY: touches no memory. A group that is gone already is an error without an effect.
        unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}

/// From now on reads and writes through this descriptor do not wait.
///
/// # Errors
/// If the descriptor is of a kind that cannot.
pub fn do_not_wait(descriptor: &impl AsFd) -> io::Result<()> {
    let descriptor = descriptor.as_fd().as_raw_fd();
    // SAFETY: flags of an open descriptor are read and set; no memory is touched.
    let result = unsafe {
        let flags = libc::fcntl(descriptor, libc::F_GETFL);
        if flags < 0 { flags } else { libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK) }
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
