//! Messages with file descriptors over a unix socket.
//!
//! Expected faults: peers that send half a message, more descriptors than allowed (an error; the
//! surplus is closed), or that never read (sending never waits: a full socket is an error).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::Stream;
use crate::ring::socket_op::SocketWork;

/// Maximum descriptors in one message.
const MAX_DESCRIPTORS: usize = 32;

/// Room for the control data of a message, aligned as its header requires.
#[repr(align(8))]
struct Control([MaybeUninit<u8>; CONTROL_BYTES]);

/// `CMSG_SPACE` of that many descriptors: a header of 16 bytes, and 4 bytes each.
const CONTROL_BYTES: usize = 16 + MAX_DESCRIPTORS * size_of::<RawFd>();

impl Stream {
    /// Receives available bytes, at most as many as fit, and waits for the first; descriptors that
    /// come with them are appended to `descriptors`. Returns the number of bytes, 0 at the end of
    /// the stream.
    ///
    /// # Errors
    /// The socket's; `InvalidData` if more than 32 descriptors come at once.
    pub async fn receive_with_descriptors(
        &self,
        into: &mut [u8],
        descriptors: &mut Vec<OwnedFd>,
    ) -> io::Result<usize> {
        loop {
            match self.try_receive(into, descriptors) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.operation(SocketWork::Readable)?.await?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                received => return received,
            }
        }
    }

    fn try_receive(&self, into: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
        let mut control = Control([MaybeUninit::uninit(); CONTROL_BYTES]);
        let mut room = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        // SAFETY: a msghdr is plain numbers and pointers; all zeros is one without name, pieces and
        // control data.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut room;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_BYTES as _;
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: the header points at `into` and `control`, which are borrowed or owned here for
        // the whole call, with their lengths.
        let bytes = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut header, flags) };
        if bytes < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has filled in the header; the macros stay within its control data, of
        // which it says how much there is.
        unsafe {
            let mut part = libc::CMSG_FIRSTHDR(&raw const header);
            while !part.is_null() {
                if (*part).cmsg_level == libc::SOL_SOCKET && (*part).cmsg_type == libc::SCM_RIGHTS {
                    let length = (*part).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                    let data = libc::CMSG_DATA(part).cast::<RawFd>();
                    for index in 0..length / size_of::<RawFd>() {
                        // The kernel made this descriptor for the message; it has no other owner.
                        descriptors.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                    }
                }
                part = libc::CMSG_NXTHDR(&raw const header, part);
            }
        }
        if header.msg_flags & libc::MSG_CTRUNC != 0 {
            let text = "a message has too many descriptors, or there are no free ones";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(bytes as usize)
    }

    /// Sends `bytes` at once, with a descriptor if there is one.
    ///
    /// # Errors
    /// The socket's; `WouldBlock` or `WriteZero` if it has no room for the message, so that the
    /// peer has not read earlier ones.
    pub fn send_at_once(&self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut control = Control([MaybeUninit::zeroed(); CONTROL_BYTES]);
        let mut piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        // SAFETY: as in `try_receive`.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut piece;
        header.msg_iovlen = 1;
        if let Some(descriptor) = descriptor {
            header.msg_control = control.0.as_mut_ptr().cast();
            // SAFETY: the control data has room for one descriptor, at the place that the macros
            // give; the sums are of constants.
            unsafe {
                header.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
                let part = libc::CMSG_FIRSTHDR(&raw const header);
                (*part).cmsg_level = libc::SOL_SOCKET;
                (*part).cmsg_type = libc::SCM_RIGHTS;
                (*part).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
                libc::CMSG_DATA(part).cast::<RawFd>().write_unaligned(descriptor.as_raw_fd());
            }
        }
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the header points at `bytes` and `control`, which live across the call, with
        // their lengths; the kernel only reads them.
        let sent = unsafe { libc::sendmsg(self.socket.as_raw_fd(), &raw const header, flags) };
        match sent {
            sent if sent < 0 => Err(io::Error::last_os_error()),
            sent if (sent as usize) < bytes.len() => Err(io::ErrorKind::WriteZero.into()),
            _ => Ok(()),
        }
    }
}
