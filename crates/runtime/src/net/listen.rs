//! Listening on an address and port, or on a socket file that exists only while the listener does.
//!
//! A socket file is created under another name, gets its permissions, and is then renamed, so it is
//! never reachable with wider permissions. Expected faults: a path or address in use (refused), a
//! socket file of a process that ended (replaced), any other file at the path (left alone), missing
//! permissions.

use std::fs::{Metadata, OpenOptions, Permissions};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::address::{Address, ShortPath};
use super::{Kind, Stream};
use crate::net::socket_future::Operation;
use crate::ring::Ring;
use crate::ring::socket_op::{Outcome, SocketWork};

/// Length of the backlog; the system limits it further (net.core.somaxconn, 4096 by default). Unix
/// sockets have the same.
const MOST_WAITING: libc::c_int = 4096;

/// An error in listening.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is in use.
    #[error("{place}: another process already listens there")]
    InUse {
        /// The path, or address and port.
        place: String,
    },
    /// The path exists and is not a socket, so it is left alone.
    #[error("{}: the path exists and is not a socket; it is left alone", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The system reports an error.
    #[error("{place}: cannot listen there: {source}")]
    System {
        /// The path, or address and port.
        place: String,
        /// The system's error.
        source: io::Error,
    },
}

/// A listening socket. Dropping it removes its socket file.
pub struct Listener {
    ring: Rc<Ring>,
    socket: Rc<OwnedFd>,
    kind: Kind,
    place: String,
    _file: Option<SocketFile>,
    address: Option<SocketAddr>,
}

impl Listener {
    pub(super) fn unix(ring: &Rc<Ring>, path: &Path, mode: u32) -> Result<Self, ListenError> {
        let (listener, file) = bind_unix(path, mode)?;
        Ok(Self {
            ring: ring.clone(),
            socket: Rc::new(listener.into()),
            kind: Kind::Unix,
            place: path.display().to_string(),
            _file: Some(file),
            address: None,
        })
    }

    pub(super) fn tcp(ring: &Rc<Ring>, address: SocketAddr) -> Result<Self, ListenError> {
        let place = address.to_string();
        let listener = TcpListener::bind(address).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => ListenError::InUse { place: place.clone() },
            _ => ListenError::System { place: place.clone(), source },
        })?;
        // The standard library sets a backlog of 128; clients beyond it would retry only after a
        // second. Best effort. SAFETY: changes a number of a socket that `listener` owns; no memory
        // is involved.
        unsafe { libc::listen(listener.as_raw_fd(), MOST_WAITING) };
        let address = listener.local_addr().unwrap_or(address);
        Ok(Self {
            ring: ring.clone(),
            socket: Rc::new(listener.into()),
            kind: Kind::Tcp,
            place: address.to_string(),
            _file: None,
            address: Some(address),
        })
    }

    /// The path, or address and port.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The address, with the actual port if port 0 was requested; `None` for a path.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Waits for a connection. If dropped, it accepts none. Errors are usually temporary (too many
    /// open descriptors, a client that disconnected), but an immediate retry may fail again.
    pub async fn accept(&self) -> io::Result<Stream> {
        match Operation::start(&self.ring, &self.socket, SocketWork::Accept)?.await? {
            Outcome::Accepted(socket) => Ok(Stream::new(&self.ring, socket, self.kind)),
            _ => unreachable!("an accept gives a connection"),
        }
    }
}

/// A socket file of this process. Dropping it removes the file, unless another socket has replaced
/// it.
pub struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_own = |found: &Metadata| found.dev() == self.device && found.ino() == self.inode;
        if std::fs::symlink_metadata(&self.path).is_ok_and(|found| is_own(&found)) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Listens at `path` with a blocking socket, for use on another thread; otherwise as
/// [`Network::listen_unix`](super::Network::listen_unix).
pub fn bind_unix(path: &Path, mode: u32) -> Result<(UnixListener, SocketFile), ListenError> {
    let place = path.display().to_string();
    let system = |source| ListenError::System { place: place.clone(), source };
    let is_left_over = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(system(error)),
        Ok(found) => is_left_over(path, &found)?,
    };
    let beside = path_beside(path).map_err(system)?;
    let listener = listen_beside(&beside, mode);
    let placed = listener.and_then(|listener| {
        let own = std::fs::symlink_metadata(&beside)?;
        if is_left_over {
            std::fs::rename(&beside, path)?;
        } else {
            // Unlike a rename, this fails if another process was first.
            std::fs::hard_link(&beside, path)?;
        }
        Ok((listener, own))
    });
    let _ = std::fs::remove_file(&beside);
    let (listener, own) = placed.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => ListenError::InUse { place: place.clone() },
        _ => system(error),
    })?;
    let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
    Ok((listener, SocketFile { path, device: own.dev(), inode: own.ino() }))
}

/// Tests if the socket at `path` is stale; an error if it is in use or not a socket.
fn is_left_over(path: &Path, found: &Metadata) -> Result<bool, ListenError> {
    if !found.file_type().is_socket() {
        return Err(ListenError::NotASocket { path: path.to_owned() });
    }
    let place = path.display().to_string();
    let tried = ShortPath::of(path).and_then(|short| UnixStream::connect(&short.path));
    match tried {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) if source.kind() == io::ErrorKind::PermissionDenied => {
            Err(ListenError::System { place, source })
        }
        // Connected, or too busy to accept: in use.
        _ => Err(ListenError::InUse { place }),
    }
}

/// An unused name in the same folder.
fn path_beside(path: &Path) -> io::Result<PathBuf> {
    let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name");
    path.file_name().ok_or_else(invalid)?;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // Short for any socket name, as it must fit into a socket address as well.
    Ok(path.with_file_name(format!(".listen-{}-{number}", std::process::id())))
}

fn listen_beside(beside: &Path, mode: u32) -> io::Result<UnixListener> {
    // Left by a killed process with the same process id.
    let _ = std::fs::remove_file(beside);
    let short = ShortPath::of(beside)?;
    let address = Address::of_path(&short)?;
    // SAFETY: makes a new descriptor, which `OwnedFd` then owns alone.
    let socket = unsafe {
        let descriptor = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(descriptor)
    };
    let done = |answer: libc::c_int| if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    // The file gets the mode of its socket, less what the umask removes: never a wider one.
    // SAFETY: an operation on an open descriptor; no memory is involved.
    done(unsafe { libc::fchmod(socket.as_raw_fd(), mode as libc::mode_t) })?;
    // SAFETY: the address has this length and outlives the call.
    done(unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr(), address.length()) })?;
    // SAFETY: an operation on an open descriptor; no memory is involved.
    done(unsafe { libc::listen(socket.as_raw_fd(), MOST_WAITING) })?;
    set_mode(beside, mode)?;
    Ok(socket.into())
}

/// Gives a socket file its mode, unless it has that. Another file in its place, or behind a link
/// there, keeps its own.
fn set_mode(socket: &Path, mode: u32) -> io::Result<()> {
    let flags = libc::O_PATH | libc::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(socket)?;
    let about = file.metadata()?;
    if !about.file_type().is_socket() {
        return Err(io::Error::other("another file has taken its path"));
    }
    match about.mode() & 0o7777 == mode {
        true => Ok(()),
        false => {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            std::fs::set_permissions(path, Permissions::from_mode(mode))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_get_the_mode_of_a_socket() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, "").expect("written");
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("set");
        std::os::unix::fs::symlink(&file, &link).expect("linked");
        for path in [&file, &link] {
            assert!(set_mode(path, 0o666).is_err());
            assert_eq!(file.metadata().expect("there").mode() & 0o777, 0o600);
        }
        let socket = folder.path().join("s");
        for mode in [0o600, 0o666] {
            let _listener = listen_beside(&socket, mode).expect("bound");
            assert_eq!(socket.metadata().expect("there").mode() & 0o777, mode);
        }
    }
}
