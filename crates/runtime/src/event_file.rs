//! Eventfds that another process shares: it signals one, and is signalled by another.
//!
//! The other process keeps its descriptor and may do with it as it likes: read it first, fill its
//! count, change its flags. So waiting and signalling go through the ring, and reading the count
//! never waits: no thread stops for any of these.
//!
//! Expected faults: descriptors of other kinds (refused), a count that is read by the other process
//! (the wait goes on), and one that is full (signalling ends when the other process reads it, or
//! when the future is dropped).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;

use crate::net::Network;
use crate::net::socket_future::Operation;
use crate::ring::Ring;
use crate::ring::socket_op::SocketWork;

/// Name that the kernel gives to eventfds.
const KIND: &str = "anon_inode:[eventfd]";

/// Makes an eventfd, with count 0.
///
/// # Errors
/// The system's if no descriptor is available.
pub fn make_event_file() -> io::Result<OwnedFd> {
    // SAFETY: makes a new descriptor, which `OwnedFd` then owns alone.
    unsafe {
        let descriptor = libc::eventfd(0, libc::EFD_CLOEXEC);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(descriptor))
    }
}

/// A shared eventfd.
pub struct EventFile {
    ring: Rc<Ring>,
    file: Rc<OwnedFd>,
}

impl Network {
    /// Uses a descriptor that another process has sent.
    ///
    /// # Errors
    /// `InvalidInput` if it is no eventfd.
    pub fn event_file(&self, file: OwnedFd) -> io::Result<EventFile> {
        let name = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        if name.as_os_str() != KIND {
            let text = format!("{} is no eventfd", name.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(EventFile { ring: self.ring.clone(), file: Rc::new(file) })
    }
}

impl EventFile {
    /// Waits until it is signalled, and resets it.
    pub async fn wait(&self) -> io::Result<()> {
        loop {
            Operation::start(&self.ring, &self.file, SocketWork::Readable)?.await?;
            match self.take() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                taken => return taken,
            }
        }
    }

    /// Reads the count, if it is not 0.
    fn take(&self) -> io::Result<()> {
        let mut count = [0_u8; 8];
        let room = libc::iovec { iov_base: count.as_mut_ptr().cast(), iov_len: count.len() };
        // SAFETY: the room is `count`, which lives across the call.
        let bytes = unsafe { libc::preadv2(self.file.as_raw_fd(), &raw const room, 1, -1, libc::RWF_NOWAIT) };
        if bytes < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Signals it. Waits while its count is full.
    pub async fn signal(&self) -> io::Result<()> {
        Operation::start(&self.ring, &self.file, SocketWork::Signal)?.await?;
        Ok(())
    }
}
