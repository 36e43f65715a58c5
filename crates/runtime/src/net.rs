//! Sockets on the executor's io_uring: listening, connecting, receiving and sending.
//!
//! Every operation is a future; dropped half-way it is cancelled. What a cancelled transfer has
//! moved by then is not known, so a stream is of no use after that. Each operation that waits (also
//! for a silent client) takes one place of what the ring keeps in flight, some 4,000, which drives
//! use too: the caller limits the number of clients.
//!
//! Expected faults: peers that go at any moment (an error, or the end of what can be received),
//! peers that never read (sending waits; a time limit is the caller's), and an executor that ends
//! (errors).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use stripewise_drive::Buffer;

use crate::message_file::MessageFile;
use crate::net::socket_future::Operation;
use crate::ring::Ring;
use crate::ring::piece::Piece;
use crate::ring::socket_op::{Outcome, SocketWork, send_work};

pub(crate) mod address;
mod listen;
pub(crate) mod socket_future;

use address::{Address, ShortPath};
pub use listen::{ListenError, Listener, SocketFile, bind_unix};

/// Who may connect to a socket file unless something else is asked for: its owner.
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
    /// Listens at `path`, where `mode` says who may connect. A stale socket file is
    /// replaced. Paths may be longer than the system's limit for sockets (107 bytes), names
    /// nearly as long. Blocks briefly.
    pub fn listen_unix(&self, path: &Path, mode: u32) -> Result<Listener, ListenError> {
        Listener::unix(&self.ring, path, mode)
    }

    /// Listens at an address; port 0 takes a free one. Blocks briefly.
    pub fn listen_tcp(&self, address: SocketAddr) -> Result<Listener, ListenError> {
        Listener::tcp(&self.ring, address)
    }

    /// Carries messages through `file`, of which each read gives a whole one; see [`MessageFile`].
    ///
    /// # Errors
    /// The system's, when there is no descriptor to be had.
    pub fn message_file(&self, file: BorrowedFd<'_>) -> io::Result<MessageFile> {
        MessageFile::new(&self.ring, file)
    }

    /// Connects to the socket file at `path`.
    pub async fn connect_unix(&self, path: &Path) -> io::Result<Stream> {
        let short = ShortPath::of(path)?;
        let address = Address::of_path(&short)?;
        self.connect(address, Kind::Unix).await
    }

    /// Connects to an address. As long as the other side is silent this waits, two minutes by
    /// default: a shorter limit is the caller's.
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

/// A connection. It is closed when this and its last operation are gone. One receive and one send
/// at a time may be under way.
pub struct Stream {
    ring: Rc<Ring>,
    socket: Rc<OwnedFd>,
    kind: Kind,
}

impl Stream {
    fn new(ring: &Rc<Ring>, socket: OwnedFd, kind: Kind) -> Self {
        let stream = Self { ring: ring.clone(), socket: Rc::new(socket), kind };
        if kind == Kind::Tcp {
            // Small answers go at once, and a peer that vanished without a word is found out some
            // day. A socket that refuses works, only slower or longer.
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

    /// Asks for so much room in the kernel for what is sent and not taken yet. Processes without
    /// privileges get what the system's limit (net.core.wmem_max) allows.
    pub fn set_send_room_bytes(&self, bytes: usize) {
        let bytes = bytes.min(1 << 30) as libc::c_int;
        self.set_option(libc::SOL_SOCKET, libc::SO_SNDBUF, bytes);
        self.set_option(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes);
    }

    /// Whether it is a unix socket: its peer is on this machine.
    pub fn is_unix(&self) -> bool {
        self.kind == Kind::Unix
    }

    /// Who is at the other end, as far as the system says, for messages.
    pub fn peer(&self) -> String {
        if self.kind == Kind::Unix {
            let process = self.peer_process();
            return process
                .map_or_else(|| "a local process".to_owned(), |number| format!("process {number}"));
        }
        self.peer_address().map_or_else(|| "a client that is gone".to_owned(), |address| address.to_string())
    }

    /// The user that connected to a unix socket, as the system checked it; `None` for other
    /// sockets.
    pub fn peer_user(&self) -> Option<u32> {
        (self.kind == Kind::Unix).then(|| self.peer_credentials()).flatten().map(|peer| peer.uid)
    }

    /// The address that a TCP connection comes from; `None` for unix sockets, and clients that are
    /// gone.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        if self.kind == Kind::Unix {
            return None;
        }
        let socket = self.socket.try_clone().ok()?;
        std::net::TcpStream::from(socket).peer_addr().ok()
    }

    /// The process that connected to a unix socket; it may be gone by now.
    fn peer_process(&self) -> Option<libc::pid_t> {
        // Of a process outside of this one's namespace the system gives 0.
        self.peer_credentials().map(|peer| peer.pid).filter(|&process| process > 0)
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

    /// Receives what is there, as much as there is room for; waits for the first byte. Gives the
    /// number of bytes: 0 where the peer sends no more. Until it has ended the memory is the
    /// kernel's.
    pub async fn receive(&self, into: Buffer) -> io::Result<usize> {
        assert!(!into.is_empty(), "there is room to receive into");
        match self.operation(SocketWork::Receive { into, all: false })?.await? {
            Outcome::Bytes(bytes) => Ok(bytes),
            _ => unreachable!("a receive gives bytes"),
        }
    }

    /// Fills all of `into`. An error of kind `UnexpectedEof` where the peer sends no more before
    /// that.
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

    /// Sends all pieces in their order, in one system call as long as the kernel has room for them.
    pub async fn send(&self, pieces: Vec<Piece>) -> io::Result<()> {
        if pieces.iter().all(Piece::is_empty) {
            return Ok(());
        }
        self.operation(send_work(pieces))?.await?;
        Ok(())
    }

    /// Ends one or both directions, at once: what waits there ends, and the peer is told.
    pub fn shutdown(&self, how: std::net::Shutdown) {
        let how = match how {
            std::net::Shutdown::Read => libc::SHUT_RD,
            std::net::Shutdown::Write => libc::SHUT_WR,
            std::net::Shutdown::Both => libc::SHUT_RDWR,
        };
        // SAFETY: an operation on a descriptor that `self.socket` owns. It fails only where the
        // peer has gone already.
        unsafe { libc::shutdown(self.socket.as_raw_fd(), how) };
    }
}
