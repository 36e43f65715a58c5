//! Certificates created by the tests, and servers that use them.

use std::path::{Path, PathBuf};
use std::process::Command;

use stripewise_export::nbd::TlsPolicy;
use tempfile::TempDir;

use super::{TlsFiles, has};

/// Creates an authority and certificates of a server and a client that it has signed, with the file
/// names of libnbd. `None` without openssl.
pub fn certificates() -> Option<TempDir> {
    if !has("openssl") {
        return None;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory");
    let openssl = |arguments: &[&str]| {
        let output =
            Command::new("openssl").current_dir(folder.path()).args(arguments).output().expect("runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let new = |name: &str, more: &[&str]| {
        let (file, subject) = (format!("{name}-key.pem"), format!("/CN={name}"));
        openssl(&[&["req"], &key[..], &["-keyout", &file, "-subj", &subject], more].concat());
    };
    new(
        "ca",
        &["-x509", "-days", "2", "-out", "ca-cert.pem", "-addext", "basicConstraints=critical,CA:TRUE"],
    );
    for name in ["server", "client"] {
        let (request, certificate) = (format!("{name}.csr"), format!("{name}-cert.pem"));
        new(name, &["-out", &request]);
        std::fs::write(
            folder.path().join("extensions"),
            "basicConstraints=CA:FALSE\nsubjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n",
        )
        .expect("written");
        openssl(&[
            "x509",
            "-req",
            "-days",
            "2",
            "-in",
            &request,
            "-CA",
            "ca-cert.pem",
            "-CAkey",
            "ca-key.pem",
            "-CAcreateserial",
            "-out",
            &certificate,
            "-extfile",
            "extensions",
        ]);
    }
    Some(folder)
}

/// Server options for the certificates.
pub fn files(folder: &Path, policy: TlsPolicy, with_clients: bool) -> TlsFiles {
    TlsFiles {
        certificate: folder.join("server-cert.pem"),
        key: folder.join("server-key.pem"),
        client_authority: with_clients.then(|| folder.join("ca-cert.pem")),
        policy,
    }
}

/// Creates a folder with only the authority's certificate.
pub fn without_certificate(folder: &Path) -> PathBuf {
    let bare = folder.join("bare");
    std::fs::create_dir_all(&bare).expect("made");
    std::fs::copy(folder.join("ca-cert.pem"), bare.join("ca-cert.pem")).expect("copied");
    bare
}
