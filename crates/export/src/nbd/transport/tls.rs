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
use rustls::server::WebPkiClientVerifier;
use rustls::{Connection, RootCertStore, ServerConfig, ServerConnection};
use stripewise_drive::Buffer;
use stripewise_runtime::{Piece, Stream, read_small_file};

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
        let config = builder.with_single_cert(chain, private).map_err(|error| unusable(&error))?;
        Ok(Self(Arc::new(config)))
    }

    /// The configuration, for other servers with the same certificate.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        self.0.clone()
    }

    /// Runs the handshake with a client.
    pub(crate) async fn handshake(&self, stream: &Rc<Stream>) -> io::Result<Session> {
        let connection = ServerConnection::new(self.0.clone()).map_err(io::Error::other)?;
        Session::agree(connection.into(), stream).await
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

impl Session {
    /// Runs the handshake, as client or server.
    pub(crate) async fn agree(connection: Connection, stream: &Rc<Stream>) -> io::Result<Self> {
        let mut session = Self::new(connection);
        loop {
            let outgoing = session.outgoing()?;
            if !outgoing.is_empty() {
                stream.send(vec![Piece::from(outgoing)]).await?;
            }
            if !session.connection.is_handshaking() {
                return Ok(session);
            }
            if session.start == session.end {
                match stream.receive(session.room()).await? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    bytes => session.received(bytes),
                }
            }
            if let Err(error) = session.digest() {
                // Best effort: the alert shows the peer the cause.
                let alert = session.outgoing()?;
                let _ = stream.send(vec![Piece::from(alert)]).await;
                return Err(error);
            }
        }
    }

    fn new(mut connection: Connection) -> Self {
        // The callers of `encrypt` bound the output; a write must not be refused half-way.
        connection.set_buffer_limit(None);
        let encrypted = Buffer::from_bytes(&[0; RECEIVE_BYTES]);
        Self { connection, encrypted, start: 0, end: 0 }
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
        let taken = bytes.with(|mut bytes| connection.read_tls(&mut bytes)).unwrap_or(Ok(0))?;
        self.start += taken;
        self.connection
            .process_new_packets()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
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
        self.outgoing()
    }

    fn outgoing(&mut self) -> io::Result<Vec<u8>> {
        let mut encrypted = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut encrypted)?;
        }
        Ok(encrypted)
    }

    /// Ciphertext of the closing alert, the last bytes of the connection.
    pub(crate) fn close(&mut self) -> Vec<u8> {
        self.connection.send_close_notify();
        self.outgoing().unwrap_or_default()
    }
}
