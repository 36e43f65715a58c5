//! HTTP listeners: socket files, whose peers are identified by the system, and TCP addresses, with
//! TLS for those that other hosts can reach.
//!
//! Expected faults: addresses in use, unreadable certificates (refused at start; later the previous
//! certificate stays in use), clients that do not speak TLS.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use stripewise_control::daemon::listeners::{TAKEN_HINT, parse_address};
use stripewise_control::daemon::socket::listen_patiently;
use stripewise_export::nbd::{Tls, TlsError};
use stripewise_runtime::{ListenError, OWNER_ONLY, SocketFile, bind_unix};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;

use super::address::Address;
use crate::commands::App;
use crate::failure::{Failure, Result};

/// Mode of a configured socket file: every user may connect; permissions depend on the user.
const ANY_USER: u32 = 0o666;

/// Listen address on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HttpPlace {
    /// A socket file.
    Unix(PathBuf),
    /// An address and port.
    Tcp(SocketAddr),
}

impl FromStr for HttpPlace {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("`unix:` lacks a path, as in unix:/run/stripewise/http.sock".to_owned()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => parse_address(text).map(Self::Tcp),
        }
    }
}

/// A listener.
pub(super) struct Door {
    listener: DoorListener,
    tls: Option<Arc<TlsFiles>>,
    /// Address to display.
    pub place: String,
    file: Option<SocketFile>,
}

enum DoorListener {
    Unix(std::os::unix::net::UnixListener),
    Tcp(std::net::TcpListener),
}

impl Door {
    /// Listens on the daemon's own socket, in its state directory.
    pub(super) async fn default(app: &App, path: &Path) -> Result<Self> {
        Self::unix(app, path, OWNER_ONLY).await
    }

    /// Listens at a configured address.
    pub(super) async fn open(app: &App, place: &HttpPlace, tls: Option<&Arc<TlsFiles>>) -> Result<Self> {
        match place {
            HttpPlace::Unix(path) => Self::unix(app, &app.absolute(path), ANY_USER).await,
            HttpPlace::Tcp(address) => {
                let bind = || {
                    std::net::TcpListener::bind(address).map_err(|source| match source.kind() {
                        io::ErrorKind::AddrInUse => ListenError::InUse { place: address.to_string() },
                        _ => ListenError::System { place: address.to_string(), source },
                    })
                };
                let listener = listen_patiently(app, bind).await?.map_err(|error| refused(&error))?;
                let address = listener.local_addr().unwrap_or(*address);
                let scheme = if tls.is_some() { "https" } else { "http" };
                let place = format!("{scheme}://{address}");
                Ok(Self { listener: DoorListener::Tcp(listener), tls: tls.cloned(), place, file: None })
            }
        }
    }

    async fn unix(app: &App, path: &Path, mode: u32) -> Result<Self> {
        let bound = listen_patiently(app, || bind_unix(path, mode)).await?;
        let (listener, file) = bound.map_err(|error| refused(&error))?;
        let place = format!("unix:{}", path.display());
        Ok(Self { listener: DoorListener::Unix(listener), tls: None, place, file: Some(file) })
    }

    /// Converts the listener for the thread that serves it. The socket file is returned separately:
    /// the daemon removes it, since nothing waits for that thread to end.
    pub(super) fn into_open(self) -> io::Result<(OpenDoor, Option<SocketFile>)> {
        let listener = match self.listener {
            DoorListener::Unix(listener) => {
                listener.set_nonblocking(true)?;
                OpenListener::Unix(UnixListener::from_std(listener)?)
            }
            DoorListener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                OpenListener::Tcp(TcpListener::from_std(listener)?)
            }
        };
        Ok((OpenDoor { listener, tls: self.tls }, self.file))
    }
}

fn refused(error: &ListenError) -> Failure {
    let failure = Failure::because("cannot listen for HTTP", error);
    match error {
        ListenError::InUse { .. } => failure.hint(TAKEN_HINT),
        _ => failure,
    }
}

/// A listener on the thread that serves it.
pub(super) struct OpenDoor {
    listener: OpenListener,
    tls: Option<Arc<TlsFiles>>,
}

enum OpenListener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// A new connection.
pub(super) enum Socket {
    /// From this host.
    Unix(UnixStream),
    /// From any host.
    Tcp(TcpStream),
}

impl OpenDoor {
    /// Accepts a connection. Returns it with the peer's address.
    pub(super) async fn accept(&self) -> io::Result<(Socket, Address)> {
        match &self.listener {
            OpenListener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let peer = stream.peer_cred()?;
                let address = Address::Local { user: peer.uid(), process: peer.pid().unwrap_or_default() };
                Ok((Socket::Unix(stream), address))
            }
            OpenListener::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok((Socket::Tcp(stream), Address::Network(address)))
            }
        }
    }

    /// TLS acceptor; `None` for an unencrypted listener.
    pub(super) fn tls(&self) -> Option<TlsAcceptor> {
        self.tls.as_ref().map(|files| files.current().server_config().into())
    }
}

/// A certificate and its key, reloaded when the files change.
pub(super) struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
    last: Mutex<(Stamps, Tls)>,
}

type Stamps = [Option<SystemTime>; 2];

impl TlsFiles {
    /// Loads the certificate and its key.
    pub(super) fn load(certificate: PathBuf, key: PathBuf) -> std::result::Result<Self, TlsError> {
        let stamps = stamps(&certificate, &key);
        let tls = Tls::load(&certificate, &key, None)?;
        Ok(Self { certificate, key, last: Mutex::new((stamps, tls)) })
    }

    fn current(&self) -> Tls {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stamps(&self.certificate, &self.key);
        if now != last.0 {
            last.0 = now;
            match Tls::load(&self.certificate, &self.key, None) {
                Ok(tls) => last.1 = tls,
                Err(error) => {
                    tracing::warn!(target: "daemon", "HTTP: the previous certificate stays in use: {error}");
                }
            }
        }
        last.1.clone()
    }
}

fn stamps(certificate: &Path, key: &Path) -> Stamps {
    [certificate, key].map(|path| std::fs::metadata(path).and_then(|found| found.modified()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_listeners_are_socket_files_or_addresses() {
        let tcp = |text: &str| HttpPlace::Tcp(text.parse().expect("an address"));
        assert_eq!("unix:/run/http.sock".parse(), Ok(HttpPlace::Unix("/run/http.sock".into())));
        assert_eq!("8080".parse(), Ok(tcp("127.0.0.1:8080")));
        assert_eq!("[::]:8080".parse(), Ok(tcp("[::]:8080")));
        for wrong in ["", "unix:", "x", "1.2.3.4", "99999"] {
            assert!(wrong.parse::<HttpPlace>().is_err(), "{wrong}");
        }
    }
}
