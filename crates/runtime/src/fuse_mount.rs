//! Mounting a FUSE file system: with `/dev/fuse` and `mount(2)`, or with the helper `fusermount3`
//! if the process is not permitted to mount. The caller exchanges the messages over the device.
//!
//! Expected faults: no `/dev/fuse`, an unsuitable folder, no permission and no helper, a helper
//! that refuses, and a mount that another program has already ended.

use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

const DEVICE: &str = "/dev/fuse";
/// `_IOR(229, 0, uint32_t)` of `linux/fuse.h`.
const FUSE_DEV_IOC_CLONE: libc::c_ulong = 0x8004_e500;
const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];
/// Flags of every mount: no devices, no set-user-ID programs, no execution, no access times.
const FLAGS: libc::c_ulong = libc::MS_NODEV | libc::MS_NOSUID | libc::MS_NOEXEC | libc::MS_NOATIME;

/// A mounted folder and the device on which the kernel sends its requests. Dropping it unmounts the
/// folder if it is still mounted.
pub struct FuseMountPoint {
    device: OwnedFd,
    folder: CString,
}

impl FuseMountPoint {
    /// Mounts at the folder `at`, for this user only; `source` is the name in the list of mounts.
    /// Blocks briefly.
    ///
    /// # Errors
    /// The system's error, `NotFound` without `/dev/fuse` or `at`; or the helper's message if the
    /// process is not permitted to mount.
    pub fn new(at: &Path, source: &str) -> io::Result<Self> {
        let folder = at.canonicalize()?;
        let folder = CString::new(folder.as_os_str().as_bytes())?;
        let device = match mount_directly(&folder, source) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => mount_by_helper(&folder, source)?,
            mounted => mounted?,
        };
        Ok(Self { device, folder })
    }

    /// Another device of the mount, with requests of its own: each request is answered on the
    /// device that gave it.
    ///
    /// # Errors
    /// The system's, where it has no clones or no free descriptor.
    pub fn clone_device(&self) -> io::Result<OwnedFd> {
        let clone = OpenOptions::new().read(true).write(true).open(DEVICE)?;
        let device = self.device.as_raw_fd() as u32;
        // SAFETY: the request reads one number, which outlives the call.
        let result = unsafe { libc::ioctl(clone.as_raw_fd(), FUSE_DEV_IOC_CLONE, &raw const device) };
        if result == 0 { Ok(clone.into()) } else { Err(io::Error::last_os_error()) }
    }

    /// True while the folder is mounted: after the unmount, the device polls as an error.
    fn is_mounted(&self) -> bool {
        let mut watched = libc::pollfd { fd: self.device.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one entry, which outlives the call.
        let ready = unsafe { libc::poll(&raw mut watched, 1, 0) };
        ready <= 0 || watched.revents & libc::POLLERR == 0
    }
}

impl AsFd for FuseMountPoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl Drop for FuseMountPoint {
    fn drop(&mut self) {
        if !self.is_mounted() {
            return;
        }
        // SAFETY: the path is a string that ends in zero.
        let is_done = unsafe { libc::umount2(self.folder.as_ptr(), 0) } == 0;
        if !is_done && io::Error::last_os_error().raw_os_error() == Some(libc::EPERM) {
            // Best effort: a mount that cannot be removed stays behind, without a server.
            let _ = help(|helper| {
                Command::new(helper)
                    .args(["-u", "-q", "-z", "--"])
                    .arg(OsStr::from_bytes(self.folder.as_bytes()))
                    .stdin(Stdio::null())
                    .output()
            });
        }
    }
}

fn mount_directly(folder: &CString, source: &str) -> io::Result<OwnedFd> {
    let device = OpenOptions::new().read(true).write(true).open(DEVICE)?;
    let mode = File::open(OsStr::from_bytes(folder.as_bytes()))?.metadata()?.mode();
    // SAFETY: these calls take nothing and cannot fail.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let options = format!(
        "fd={},rootmode={mode:o},user_id={user},group_id={group},default_permissions",
        device.as_raw_fd()
    );
    let (source, options) = (CString::new(source)?, CString::new(options)?);
    // SAFETY: all are strings that end in zero and outlive the call.
    let result = unsafe {
        libc::mount(source.as_ptr(), folder.as_ptr(), c"fuse".as_ptr(), FLAGS, options.as_ptr().cast())
    };
    if result == 0 { Ok(device.into()) } else { Err(io::Error::last_os_error()) }
}

/// Mounts with the privileged helper, which passes the device over a socket. The socket is its
/// standard input, so that no other program started now can inherit it.
fn mount_by_helper(folder: &CString, source: &str) -> io::Result<OwnedFd> {
    let options =
        format!("fsname={source},subtype=stripewise,default_permissions,noatime,nosuid,nodev,noexec");
    let (ours, output) = help(|helper| {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(helper);
        command.args(["-o", &options, "--"]).arg(OsStr::from_bytes(folder.as_bytes()));
        command.env("_FUSE_COMMFD", "0").stdin(OwnedFd::from(theirs));
        let output = command.output()?;
        Ok((ours, output))
    })?;
    receive_descriptor(&ours).map_err(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        if said.trim().is_empty() { error } else { io::Error::other(said.trim().to_owned()) }
    })
}

/// Runs the first installed helper.
fn help<T>(run: impl Fn(&str) -> io::Result<T>) -> io::Result<T> {
    let mut result = Err(ErrorKind::NotFound.into());
    for helper in HELPERS {
        result = run(helper);
        if !matches!(&result, Err(error) if error.kind() == ErrorKind::NotFound) {
            return result;
        }
    }
    result.map_err(|_: io::Error| {
        io::Error::new(
            ErrorKind::PermissionDenied,
            "this user is not permitted to mount, and fusermount3 is not installed",
        )
    })
}

/// Receives the descriptor in the next message of a socket.
fn receive_descriptor(socket: &UnixStream) -> io::Result<OwnedFd> {
    // Aligned for control messages, and large enough for one with one descriptor.
    let mut control = [0_u64; 8];
    let mut byte = [0_u8; 1];
    let mut room = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: byte.len() };
    // SAFETY: all zeros is an empty message.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut room;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    loop {
        // SAFETY: everything that the message points to outlives the call.
        let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        if length > 0 {
            break;
        }
        let error = io::Error::last_os_error();
        match length {
            0 => return Err(io::Error::new(ErrorKind::UnexpectedEof, "fusermount3 gave no device")),
            _ if error.kind() == ErrorKind::Interrupted => {}
            _ => return Err(error),
        }
    }
    // SAFETY: the kernel has filled in the control messages and their length. The first, if there
    // is one, lies in `control`, which is still alive.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(&raw const message);
        if first.is_null()
            || (*first).cmsg_level != libc::SOL_SOCKET
            || (*first).cmsg_type != libc::SCM_RIGHTS
        {
            return Err(io::Error::new(ErrorKind::InvalidData, "fusermount3 gave no device"));
        }
        // A new descriptor of this process, which nothing else owns.
        Ok(OwnedFd::from_raw_fd(libc::CMSG_DATA(first).cast::<libc::c_int>().read_unaligned()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Sends a descriptor as the helper does.
    fn send_descriptor(socket: &UnixStream, descriptor: i32) {
        let mut control = [0_u64; 8];
        let mut room = libc::iovec { iov_base: b"x".as_ptr().cast_mut().cast(), iov_len: 1 };
        // SAFETY: as in `receive_descriptor`; the header lies in `control`.
        unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut room;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(4) as _;
            let first = libc::CMSG_FIRSTHDR(&raw const message);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(4) as _;
            libc::CMSG_DATA(first).cast::<i32>().write_unaligned(descriptor);
            assert_eq!(libc::sendmsg(socket.as_raw_fd(), &raw const message, 0), 1);
        }
    }

    #[test]
    fn a_descriptor_is_received_over_a_socket() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let file = File::open("/dev/zero").expect("there");
        send_descriptor(&theirs, file.as_raw_fd());
        let received = File::from(receive_descriptor(&ours).expect("one was sent"));
        let same = |file: &File| file.metadata().map(|about| (about.dev(), about.ino())).expect("open");
        assert_eq!(same(&received), same(&file));
        // SAFETY: reads the flags of a descriptor.
        let flags = unsafe { libc::fcntl(received.as_raw_fd(), libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC, "no other program inherits it");
    }

    #[test]
    fn a_helper_that_sends_no_descriptor_is_an_error() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        drop(theirs);
        assert_eq!(receive_descriptor(&ours).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        theirs.write_all(b"x").expect("sent");
        assert_eq!(receive_descriptor(&ours).unwrap_err().kind(), ErrorKind::InvalidData);
    }

    #[test]
    fn a_missing_mount_point_is_refused() {
        let error = FuseMountPoint::new(Path::new("/no/such/folder"), "test").err().expect("refused");
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
}
