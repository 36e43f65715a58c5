//! Sockets on the executor's io_uring: listening, connecting, receiving and sending.
//!
//! Every operation is a future, and dropping it cancels the operation. How much a cancelled
//! transfer has moved is unknown, so the stream is unusable afterwards. Each waiting operation
//! (even for a silent client) takes one of the ring's some 4,000 places, which drives share: the
//! caller must limit the number of clients.
//!
//! Expected faults: peers that disconnect at any moment (an error, or the end of the stream), peers
//! that never read (sending waits; the caller sets the time limit), and an executor that ends
//! (errors).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use stripewise_drive::Buffer;

use crate::fuse_ring::FuseRing;
use crate::message_file::MessageFile;
use crate::net::socket_future::Operation;
use crate::ring::Ring;
use crate::ring::piece::Piece;
use crate::ring::socket_op::{Outcome, SocketWork, send_work};

pub(crate) mod address;
mod descriptors;
mod listen;
pub(crate) mod socket_future;

use address::{Address, ShortPath};
pub use listen::{ListenError, Listener, SocketFile, bind_unix};

/// Default mode of a socket file: only its owner may connect.
pub const OWNER_ONLY: u32 = 0o600;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unix,
    Tcp,
}

/// Makes sockets from within tasks; see [`RealExecutor::network`](crate::RealExecutor::network).
#[derive(Clone)]
pub struct Network {
    pub(crate) ring: Rc<Ring>,
}

impl Network {
    /// The factory of the executor that runs on this thread.
    ///
    /// # Panics
    /// If none does.
    pub fn running() -> Self {
        Self { ring: Ring::running() }
    }

    /// Listens at `path`; `mode` is that of the socket file. A stale socket file is replaced. The
    /// path may exceed the system's limit for sockets (107 bytes), the file name alone may nearly
    /// reach it. Blocks briefly.
    pub fn listen_unix(&self, path: &Path, mode: u32) -> Result<Listener, ListenError> {
        Listener::unix(&self.ring, path, mode)
    }

    /// Listens at an address; port 0 takes a free one. Blocks briefly.
    pub fn listen_tcp(&self, address: SocketAddr) -> Result<Listener, ListenError> {
        Listener::tcp(&self.ring, address)
    }

    /// Exchanges messages over `file`, each read of which returns a whole one; see [`MessageFile`].
    ///
    /// # Errors
    /// The system's error if no descriptor is available.
    pub fn message_file(&self, file: BorrowedFd<'_>) -> io::Result<MessageFile> {
        MessageFile::new(&self.ring, file)
    }

    /// A ring for the messages of a FUSE mount, with data of at most `payload_bytes` each; see
    /// [`FuseRing`].
    ///
    /// # Errors
    /// The system's error if memory or descriptors are missing.
    pub fn fuse_ring(&self, device: BorrowedFd<'_>, payload_bytes: usize) -> io::Result<FuseRing> {
        FuseRing::new(&self.ring, device, payload_bytes)
    }

    /// Continues a connection of another executor here.
    pub fn take_over(&self, handed: HandedStream) -> Stream {
        Stream { ring: self.ring.clone(), socket: Rc::new(handed.socket), kind: handed.kind }
    }

    /// Uses a unix socket that another process has sent.
    pub fn adopt_unix(&self, socket: OwnedFd) -> Stream {
        Stream::new(&self.ring, socket, Kind::Unix)
    }

    /// Connects to the socket file at `path`.
    pub async fn connect_unix(&self, path: &Path) -> io::Result<Stream> {
        let short = ShortPath::of(path)?;
        let address = Address::of_path(&short)?;
        self.connect(address, Kind::Unix).await
    }

    /// Connects to an address. Waits up to two minutes by default for a host that does not respond;
    /// the caller sets a shorter limit.
    pub async fn connect_tcp(&self, address: SocketAddr) -> io::Result<Stream> {
        self.connect(Address::of_tcp(address), Kind::Tcp).await
    }

    async fn connect(&self, address: Address, kind: Kind) -> io::Result<Stream> {
        // SAFETY: makes a new descriptor, which `OwnedFd` then owns alone.
        let socket = unsafe {
            let descriptor = libc::socket(address.family(), libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(descriptor)
        };
        let stream = Stream::new(&self.ring, socket, kind);
        stream.operation(SocketWork::Connect(Box::new(address)))?.await?;
        Ok(stream)
    }
}

/// A connection. It is closed when this and its last operation are dropped. At most one receive and
/// one send may run at a time.
pub struct Stream {
    ring: Rc<Ring>,
    socket: Rc<OwnedFd>,
    kind: Kind,
}

/// A connection on its way to the executor of another thread.
pub struct HandedStream {
    socket: OwnedFd,
    kind: Kind,
}

impl Stream {
    /// A second descriptor of the connection, for an executor that is to send and receive in this
    /// one's place. A shutdown through either concerns both.
    ///
    /// # Errors
    /// The system's error if no descriptor is available.
    pub fn hand_over(&self) -> io::Result<HandedStream> {
        Ok(HandedStream { socket: self.socket.try_clone()?, kind: self.kind })
    }

    fn new(ring: &Rc<Ring>, socket: OwnedFd, kind: Kind) -> Self {
        let stream = Self { ring: ring.clone(), socket: Rc::new(socket), kind };
        if kind == Kind::Tcp {
            // Sends short replies at once, and eventually detects a peer that vanished. Best
            // effort: the socket works without these options.
            stream.set_option(libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
            stream.set_option(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
        }
        stream
    }

    fn set_option(&self, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
        let length = size_of_val(&value) as libc::socklen_t;
        // SAFETY: reads `length` bytes of `value`, which lives across the call; the descriptor is
        // owned by `self.socket`.
        unsafe {
            libc::setsockopt(self.socket.as_raw_fd(), level, name, (&raw const value).cast(), length);
        }
    }

    /// Requests a size for the kernel's send buffer. Unprivileged processes get at most
    /// net.core.wmem_max.
    pub fn set_send_room_bytes(&self, bytes: usize) {
        let bytes = bytes.min(1 << 30) as libc::c_int;
        self.set_option(libc::SOL_SOCKET, libc::SO_SNDBUF, bytes);
        self.set_option(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes);
    }

    /// True for a unix socket, whose peer is on this host.
    pub fn is_unix(&self) -> bool {
        self.kind == Kind::Unix
    }

    /// Description of the peer for messages.
    pub fn peer(&self) -> String {
        if self.kind == Kind::Unix {
            let process = self.peer_process();
            return process
                .map_or_else(|| "a local process".to_owned(), |number| format!("process {number}"));
        }
        self.peer_address().map_or_else(|| "a disconnected client".to_owned(), |address| address.to_string())
    }

    /// The user that connected to a unix socket, as verified by the kernel; `None` for other
    /// sockets.
    pub fn peer_user(&self) -> Option<u32> {
        (self.kind == Kind::Unix).then(|| self.peer_credentials()).flatten().map(|peer| peer.uid)
    }

    /// The peer's address of a TCP connection; `None` for unix sockets and disconnected clients.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        if self.kind == Kind::Unix {
            return None;
        }
        let socket = self.socket.try_clone().ok()?;
        std::net::TcpStream::from(socket).peer_addr().ok()
    }

    /// The own address of a TCP connection; `None` for unix sockets.
    pub fn own_address(&self) -> Option<SocketAddr> {
        if self.kind == Kind::Unix {
            return None;
        }
        let socket = self.socket.try_clone().ok()?;
        std::net::TcpStream::from(socket).local_addr().ok()
    }

    /// The process at the other end of a unix socket, that connected or listened; it may have
    /// ended. `None` for other sockets, and for processes of another namespace.
    pub fn peer_process(&self) -> Option<u32> {
        if self.kind != Kind::Unix {
            return None;
        }
        // The kernel reports 0 for a process of another namespace.
        let process = u32::try_from(self.peer_credentials()?.pid).ok()?;
        (process > 0).then_some(process)
    }

    fn peer_credentials(&self) -> Option<libc::ucred> {
        let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut length = size_of_val(&peer) as libc::socklen_t;
        // SAFETY: writes at most `length` bytes to `peer`, which lives across the call; the
        // descriptor is owned by `self.socket`.
        let answer = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut peer).cast(),
                &raw mut length,
            )
        };
        (answer == 0).then_some(peer)
    }

    fn operation(&self, work: SocketWork) -> io::Result<Operation> {
        Operation::start(&self.ring, &self.socket, work)
    }

    /// Receives available bytes, at most as many as fit, and waits for the first. Returns their
    /// number, 0 at the end of the stream. The kernel owns the buffer until this has ended.
    pub async fn receive(&self, into: Buffer) -> io::Result<usize> {
        assert!(!into.is_empty(), "there is room to receive into");
        match self.operation(SocketWork::Receive { into, all: false })?.await? {
            Outcome::Bytes(bytes) => Ok(bytes),
            _ => unreachable!("a receive gives bytes"),
        }
    }

    /// Fills all of `into`; the error is `UnexpectedEof` if the stream ends first.
    pub async fn receive_all(&self, into: Buffer) -> io::Result<()> {
        let mut done = 0;
        while done < into.len() {
            let rest = into.slice(done..into.len());
            match self.operation(SocketWork::Receive { into: rest, all: true })?.await? {
                Outcome::Bytes(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Outcome::Bytes(bytes) => done += bytes,
                _ => unreachable!("a receive gives bytes"),
            }
        }
        Ok(())
    }

    /// Sends all pieces in order, in one system call if the kernel has room for them.
    pub async fn send(&self, pieces: Vec<Piece>) -> io::Result<()> {
        if pieces.iter().all(Piece::is_empty) {
            return Ok(());
        }
        self.operation(send_work(pieces))?.await?;
        Ok(())
    }

    /// Shuts down one or both directions at once: pending operations end, and the peer sees the end
    /// of the stream.
    pub fn shutdown(&self, how: std::net::Shutdown) {
        let how = match how {
            std::net::Shutdown::Read => libc::SHUT_RD,
            std::net::Shutdown::Write => libc::SHUT_WR,
            std::net::Shutdown::Both => libc::SHUT_RDWR,
        };
        // SAFETY: an operation on a descriptor that `self.socket` owns. It fails only if the peer
        // has already disconnected.
        unsafe { libc::shutdown(self.socket.as_raw_fd(), how) };
    }
}
