//! Addresses as the kernel takes them, and paths of sockets that are longer than an address has
//! room for.
//!
//! Expected faults: paths and names too long, and paths with a zero byte in them.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes of a path that an address has room for, with the zero byte at its end.
const PATH_BYTES: usize = 108;

/// An address to connect to.
pub(crate) enum Address {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
    Unix(libc::sockaddr_un),
}

impl Address {
    pub(crate) fn of_tcp(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self::V4(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(address) => Self::V6(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            }),
        }
    }

    pub(crate) fn of_path(path: &ShortPath) -> io::Result<Self> {
        let bytes = path.path.as_os_str().as_bytes();
        if bytes.contains(&0) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a path cannot hold a zero byte"));
        }
        let mut address =
            libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; PATH_BYTES] };
        for (to, from) in address.sun_path.iter_mut().zip(bytes) {
            *to = *from as libc::c_char;
        }
        Ok(Self::Unix(address))
    }

    pub(crate) fn family(&self) -> libc::c_int {
        match self {
            Self::V4(_) => libc::AF_INET,
            Self::V6(_) => libc::AF_INET6,
            Self::Unix(_) => libc::AF_UNIX,
        }
    }

    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr {
        match self {
            Self::V4(address) => std::ptr::from_ref(address).cast(),
            Self::V6(address) => std::ptr::from_ref(address).cast(),
            Self::Unix(address) => std::ptr::from_ref(address).cast(),
        }
    }

    pub(crate) fn length(&self) -> libc::socklen_t {
        let length = match self {
            Self::V4(address) => size_of_val(address),
            Self::V6(address) => size_of_val(address),
            Self::Unix(address) => size_of_val(address),
        };
        length as libc::socklen_t
    }
}

/// A path that fits a socket address: the path itself, or a short one through its folder, which is
/// held open.
pub(crate) struct ShortPath {
    pub(crate) path: PathBuf,
    _folder: Option<File>,
}

impl ShortPath {
    /// Fails where the folder cannot be opened, or the name alone is too long.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        if path.as_os_str().len() < PATH_BYTES {
            return Ok(Self { path: path.to_owned(), _folder: None });
        }
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        let folder =
            File::options().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(parent)?;
        let through = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
        if through.as_os_str().len() >= PATH_BYTES {
            let most = PATH_BYTES - 1 - (through.as_os_str().len() - name.len());
            let why =
                format!("the socket's name has {} bytes, and a socket's can have {most} there", name.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(Self { path: through, _folder: Some(folder) })
    }
}
