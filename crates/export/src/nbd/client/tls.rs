//! TLS of the client: the trusted authority and the client's own certificate, in a folder and under
//! the names that libnbd and QEMU use (`ca-cert.pem`, `client-cert.pem`, `client-key.pem`).
//!
//! Expected faults: missing or malformed files, servers with certificates of another authority or
//! for another name.

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use stripewise_drive::Semaphore;
use stripewise_runtime::Stream;

use crate::nbd::transport::tls::{Session, TlsError, failed, read_certificates, read_key};

/// Trusted authority and certificate of a client.
pub(crate) struct ClientTls(Arc<ClientConfig>);

impl ClientTls {
    /// Loads the files in `folder`. The client's own certificate is optional. Blocks: the
    /// folder may be on another machine.
    pub(super) fn load(folder: &Path) -> Result<Self, TlsError> {
        let unusable = |error: &dyn std::fmt::Display| TlsError::Unusable(error.to_string());
        let authority = folder.join("ca-cert.pem");
        let mut roots = RootCertStore::empty();
        for certificate in read_certificates(&authority)? {
            roots.add(certificate).map_err(|error| failed(&authority, &error))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?
            .with_root_certificates(roots);
        let (own, key) = (folder.join("client-cert.pem"), folder.join("client-key.pem"));
        let config = if own.exists() {
            let chain = read_certificates(&own)?;
            let private = read_key(&key)?;
            builder.with_client_auth_cert(chain, private).map_err(|error| unusable(&error))?
        } else {
            builder.with_no_client_auth()
        };
        Ok(Self(Arc::new(config)))
    }

    /// Runs the handshake with a server, whose certificate must be for `name`.
    pub(super) async fn handshake(&self, stream: &Rc<Stream>, name: &str) -> io::Result<Session> {
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| io::Error::other(format!("`{name}` is not a valid name for a certificate")))?;
        let connection = ClientConnection::new(self.0.clone(), name).map_err(io::Error::other)?;
        // A client has few connections.
        Session::agree(connection.into(), stream, &Semaphore::new(1)).await
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn pipes_and_devices_are_no_certificates() {
        let folder = tempfile::tempdir().expect("a folder");
        let load = || {
            let (sender, receiver) = channel();
            let folder = folder.path().to_owned();
            std::thread::spawn(move || sender.send(ClientTls::load(&folder).map(drop)));
            let loaded = receiver.recv_timeout(Duration::from_secs(5)).expect("it waits for a writer");
            loaded.expect_err("no certificate").to_string()
        };
        let path = folder.path().join("ca-cert.pem");
        assert!(Command::new("mkfifo").arg(&path).status().expect("mkfifo").success());
        assert!(load().ends_with("ca-cert.pem: it is not a file"), "{}", load());
        std::fs::remove_file(&path).expect("removed");
        std::os::unix::fs::symlink("/dev/zero", &path).expect("linked");
        assert!(load().ends_with("ca-cert.pem: it is not a file"), "{}", load());
    }
}
