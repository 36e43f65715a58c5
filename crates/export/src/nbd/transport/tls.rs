//! TLS with rustls: the server's certificate and key, and the encryption state of one connection,
//! for server and client.
//!
//! Expected faults: files without a certificate or key, or that do not match; peers that do not
//! speak TLS, lack a required certificate, or disconnect during the handshake.

use std::io::{self, Read, Write};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{Connection, RootCertStore, ServerConfig, ServerConnection};
use stripewise_drive::{Buffer, Semaphore};
use stripewise_runtime::{Piece, Stream, read_small_file};

use crate::bridge::off_thread;

/// Maximum plaintext encrypted at a time.
const ENCRYPT_BYTES: usize = 1 << 20;
/// Maximum ciphertext received at a time: two records of maximum length.
const RECEIVE_BYTES: usize = 36 << 10;

/// Maximum length of a file of certificates, or of a key. A list of all public authorities is about
/// 200 KiB long.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Policy for encryption of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsPolicy {
    /// TLS is not available.
    None,
    /// TLS is optional for clients.
    Offered,
    /// TLS is required: other clients get an error and no information about exports.
    Required,
}

/// An error in setting up TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is missing or malformed.
    #[error("{path}: {why}")]
    File {
        /// Path of the file.
        path: String,
        /// Reason.
        why: String,
    },
    /// Certificate and key are unusable.
    #[error("the certificate and key cannot be used for TLS: {0}")]
    Unusable(String),
}

/// A server's certificate and key. Clones are cheap.
#[derive(Clone)]
pub struct Tls(Arc<ServerConfig>);

impl Tls {
    /// Loads PEM files. With `client_authority`, clients need a certificate signed by one of its
    /// authorities.
    pub fn load(certificates: &Path, key: &Path, client_authority: Option<&Path>) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let unusable = |error: &dyn std::fmt::Display| TlsError::Unusable(error.to_string());
        let chain = read_certificates(certificates)?;
        let private = read_key(key)?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?;
        let builder = match client_authority {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in read_certificates(path)? {
                    roots.add(certificate).map_err(|error| failed(path, &error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| failed(path, &error))?)
            }
        };
        let mut config = builder.with_single_cert(chain, private).map_err(|error| unusable(&error))?;
        if client_authority.is_some() {
            // A resumed session would skip the verification, and admit a certificate that has
            // expired since.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Self(Arc::new(config)))
    }

    /// The configuration, for other servers with the same certificate.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        self.0.clone()
    }

    /// Runs the handshake with a client.
    pub(crate) async fn handshake(&self, stream: &Rc<Stream>, computing: &Semaphore) -> io::Result<Session> {
        let connection = ServerConnection::new(self.0.clone()).map_err(io::Error::other)?;
        Session::agree(connection.into(), stream, computing).await
    }
}

pub(crate) fn failed(path: &Path, why: &dyn std::fmt::Display) -> TlsError {
    TlsError::File { path: path.display().to_string(), why: why.to_string() }
}

pub(crate) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read_pem(path)?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|error| failed(path, &error))?;
    if certificates.is_empty() {
        return Err(failed(path, &"it contains no certificate"));
    }
    Ok(certificates)
}

pub(crate) fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read_pem(path)?).map_err(|error| failed(path, &error))
}

/// Reads a file that a client of the daemon may have named.
fn read_pem(path: &Path) -> Result<Vec<u8>, TlsError> {
    let (text, _) = read_small_file(path, MAX_FILE_BYTES).map_err(|error| failed(path, &error))?;
    Ok(text)
}

/// TLS state of one connection.
pub(crate) struct Session {
    connection: Connection,
    /// Received ciphertext; bytes `start..end` are not decrypted yet.
    encrypted: Buffer,
    start: usize,
    end: usize,
}

/// A [`Session`] between threads.
pub(crate) struct HandedSession {
    connection: Connection,
    /// Received ciphertext that is not decrypted yet.
    encrypted: Vec<u8>,
}

impl From<Session> for HandedSession {
    fn from(session: Session) -> Self {
        let encrypted = session.encrypted.slice(session.start..session.end).to_vec();
        Self { connection: session.connection, encrypted }
    }
}

impl From<HandedSession> for Session {
    fn from(handed: HandedSession) -> Self {
        let HandedSession { connection, encrypted: received } = handed;
        let encrypted = Buffer::from_bytes(&[0; RECEIVE_BYTES]);
        encrypted.slice(0..received.len()).with_mut(|to| to.copy_from_slice(&received));
        Self { connection, encrypted, start: 0, end: received.len() }
    }
}

/// Computes a step of a handshake from received ciphertext; the number of bytes that it took.
fn step(connection: &mut Connection, mut bytes: &[u8]) -> io::Result<usize> {
    let taken = connection.read_tls(&mut bytes)?;
    connection.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(taken)
}

fn outgoing(connection: &mut Connection) -> io::Result<Vec<u8>> {
    let mut encrypted = Vec::new();
    while connection.wants_write() {
        connection.write_tls(&mut encrypted)?;
    }
    Ok(encrypted)
}

impl Session {
    /// Runs the handshake, as client or server. Signatures and keys are computed on other threads,
    /// each with a permit of `computing`: they take milliseconds, in which the executor would serve
    /// no client.
    pub(crate) async fn agree(
        mut connection: Connection,
        stream: &Rc<Stream>,
        computing: &Semaphore,
    ) -> io::Result<Self> {
        // The callers of `encrypt` bound the output; a write must not be refused half-way.
        connection.set_buffer_limit(None);
        let encrypted = Buffer::from_bytes(&[0; RECEIVE_BYTES]);
        let (mut start, mut end) = (0, 0);
        loop {
            let outgoing = outgoing(&mut connection)?;
            if !outgoing.is_empty() {
                stream.send(vec![Piece::from(outgoing)]).await?;
            }
            if !connection.is_handshaking() {
                return Ok(Self { connection, encrypted, start, end });
            }
            if start == end {
                (start, end) = match stream.receive(encrypted.clone()).await? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    bytes => (0, bytes),
                };
            }
            let bytes = encrypted.slice(start..end).to_vec();
            let _permit = computing.acquire(1).await;
            let computed = off_thread(move || {
                let taken = step(&mut connection, &bytes);
                (connection, taken)
            });
            let taken;
            (connection, taken) = computed.await?;
            match taken {
                Ok(taken) => start += taken,
                Err(error) => {
                    // Best effort: the alert shows the peer the cause.
                    let alert = self::outgoing(&mut connection)?;
                    let _ = stream.send(vec![Piece::from(alert)]).await;
                    return Err(error);
                }
            }
        }
    }

    /// The peer's certificate, if it presented one.
    pub(crate) fn certificate(&self) -> Option<CertificateDer<'static>> {
        let chain = self.connection.peer_certificates()?;
        chain.first().map(|certificate| certificate.clone().into_owned())
    }

    /// Buffer to receive into; only valid when all previous ciphertext is decrypted.
    pub(crate) fn room(&self) -> Buffer {
        self.encrypted.clone()
    }

    /// Records that `bytes` were received.
    pub(crate) fn received(&mut self, bytes: usize) {
        (self.start, self.end) = (0, bytes);
    }

    /// Processes some of the received ciphertext.
    fn digest(&mut self) -> io::Result<()> {
        let bytes = self.encrypted.slice(self.start..self.end);
        let connection = &mut self.connection;
        self.start += bytes.with(|bytes| step(connection, bytes)).unwrap_or(Ok(0))?;
        Ok(())
    }

    /// Reads plaintext; 0 bytes at the end of the stream, `None` if more ciphertext is needed.
    pub(crate) fn decrypted(&mut self, into: &Buffer) -> io::Result<Option<usize>> {
        loop {
            let connection = &mut self.connection;
            let read = into.with_mut(|into| connection.reader().read(into)).unwrap_or(Ok(0));
            match read {
                Ok(bytes) => return Ok(Some(bytes)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if self.start == self.end {
                return Ok(None);
            }
            self.digest()?;
        }
    }

    /// Encrypts the next part of the pieces, from `taken` (piece, byte) on; empty at their end.
    pub(crate) fn encrypt(&mut self, pieces: &[Piece], taken: &mut (usize, usize)) -> io::Result<Vec<u8>> {
        let mut clear = 0;
        while let Some(piece) = pieces.get(taken.0).filter(|_| clear < ENCRYPT_BYTES) {
            let from = taken.1;
            let to = piece.len().min(from + ENCRYPT_BYTES - clear);
            let connection = &mut self.connection;
            piece.with(|bytes| connection.writer().write_all(&bytes[from..to]))?;
            clear += to - from;
            *taken = if to == piece.len() { (taken.0 + 1, 0) } else { (taken.0, to) };
        }
        outgoing(&mut self.connection)
    }

    /// Ciphertext of the closing alert, the last bytes of the connection.
    pub(crate) fn close(&mut self) -> Vec<u8> {
        self.connection.send_close_notify();
        outgoing(&mut self.connection).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;
    use std::thread::{ThreadId, current};

    use rustls::pki_types::ServerName;
    use rustls::server::{ClientHello, ResolvesServerCert};
    use rustls::sign::CertifiedKey;
    use rustls::{ClientConfig, ClientConnection};
    use stripewise_runtime::{OWNER_ONLY, RealExecutor};

    use super::*;

    /// Has no certificate; notes the thread that asks for one.
    #[derive(Debug, Default)]
    struct Asked(Mutex<Vec<ThreadId>>);

    impl ResolvesServerCert for Asked {
        fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            self.0.lock().expect("no panic").push(current().id());
            None
        }
    }

    #[test]
    fn handshakes_are_computed_off_the_executor() {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions = |builder: rustls::ConfigBuilder<ServerConfig, rustls::WantsVersions>| {
            builder.with_safe_default_protocol_versions().expect("versions")
        };
        let asked = Arc::new(Asked::default());
        let server = versions(ServerConfig::builder_with_provider(provider.clone()));
        let tls = Tls(Arc::new(server.with_no_client_auth().with_cert_resolver(asked.clone())));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("s");
        let executor = RealExecutor::new().expect("io_uring");
        let listener = executor.network().listen_unix(&path, OWNER_ONLY).expect("a socket");
        let client = std::thread::spawn(move || {
            let config = ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .expect("versions")
                .with_root_certificates(RootCertStore::empty())
                .with_no_client_auth();
            let name = ServerName::try_from("localhost").expect("a name");
            let mut connection = ClientConnection::new(Arc::new(config), name).expect("a client");
            let mut stream = UnixStream::connect(path).expect("connected");
            connection.complete_io(&mut stream).expect_err("the server has no certificate");
        });
        executor.block_on(async {
            let stream = Rc::new(listener.accept().await.expect("a client"));
            let shaken = tls.handshake(&stream, &Semaphore::new(1)).await;
            assert!(shaken.is_err(), "there is no certificate");
        });
        client.join().expect("no panic");
        let asked = asked.0.lock().expect("no panic");
        assert!(!asked.is_empty() && !asked.contains(&current().id()));
    }
}
