//! TLS with libnbd's client: optional, required, with client certificates, and with peers that do
//! not speak it.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConnection};

use crate::kit::certificates::{certificates, files, without_certificate};
use crate::kit::client::{
    ACK, Client, ERROR, OPT_EXPORT_NAME, OPT_GO, OPT_LIST, OPT_STARTTLS, info, option_bytes,
};
use crate::kit::{Served, Wanted, contents, has, run_program, try_run};
use stripewise_export::nbd::{Limits, Rule, Tls, TlsPolicy, Who};

fn served(folder: &Path, policy: TlsPolicy, with_clients: bool) -> Served {
    let limits = Limits { negotiation_ns: 2_000_000_000, ..Limits::default() };
    Served::start(Wanted {
        tls: Some(files(folder, policy, with_clients)),
        tcp: true,
        limits,
        ..Wanted::default()
    })
}

fn encrypted_uri(served: &Served, certificates: &Path) -> String {
    format!("nbds://localhost:{}/tank/data?tls-certificates={}", served.port, certificates.display())
}

#[test]
fn libnbd_copies_round_trip_over_tls() {
    let Some(folder) = certificates() else { return };
    if !has("nbdcopy") || !has("nbdinfo") {
        return;
    }
    for with_clients in [false, true] {
        let served = served(folder.path(), TlsPolicy::Required, with_clients);
        let uri = encrypted_uri(&served, folder.path());
        let said = run_program("nbdinfo", &[&uri]);
        assert!(said.contains("TLS"), "{said}");
        let (file, back) = (served.folder.path().join("there.img"), served.folder.path().join("back.img"));
        std::fs::write(&file, contents(8, 64 << 20)).expect("written");
        run_program("nbdcopy", &[file.to_str().expect("a path"), &uri]);
        run_program("nbdcopy", &[&uri, back.to_str().expect("a path")]);
        assert!(std::fs::read(&file).expect("read") == std::fs::read(&back).expect("read"));

        let bare = encrypted_uri(&served, &without_certificate(folder.path()));
        let shown = try_run("nbdinfo", &[&bare]);
        assert_eq!(shown.is_err(), with_clients, "{shown:?}");
    }
}

#[test]
fn a_certificate_grants_only_its_own_exports() {
    let Some(folder) = certificates() else { return };
    if !has("nbdinfo") {
        return;
    }
    let rule = |name: &str, export: &str| Rule {
        who: Who::Certificate(name.to_owned()),
        exports: vec![export.to_owned()],
    };
    let served = Served::start(Wanted {
        volumes: vec![("data", 8), ("other", 8)],
        tls: Some(files(folder.path(), TlsPolicy::Required, true)),
        // The client's certificate is for `localhost`.
        rules: Some(vec![rule("localhost", "tank/data"), rule("elsewhere.example", "tank/other")]),
        tcp: true,
        ..Wanted::default()
    });
    let uri = encrypted_uri(&served, folder.path());
    run_program("nbdinfo", &[&uri]);
    let other = try_run("nbdinfo", &[&uri.replace("/tank/data", "/tank/other")]);
    assert!(other.is_err(), "{other:?}");
    let listed = run_program("nbdinfo", &["--list", &uri.replace("/tank/data", "/")]);
    assert!(listed.contains("tank/data") && !listed.contains("tank/other"), "{listed}");
}

#[test]
fn plaintext_clients_are_refused_when_tls_is_required() {
    let Some(folder) = certificates() else { return };
    let required = served(folder.path(), TlsPolicy::Required, false);
    let mut client = Client::connect(&required.socket);
    assert_eq!(client.option(OPT_LIST, &[])[0].0, ERROR + 5);
    assert_eq!(client.option(OPT_GO, &info("tank/data", &[]))[0].0, ERROR + 5);
    assert_eq!(client.option(OPT_GO, &info("tank/none", &[]))[0].0, ERROR + 5);
    client.send(&option_bytes(OPT_EXPORT_NAME, b"tank/data"));
    assert!(client.is_closed());
    // With optional TLS both kinds of clients work.
    let offered = served(folder.path(), TlsPolicy::Offered, false);
    assert_eq!(Client::ready(&offered.socket, "tank/data").read(0, 512), [0; 512]);
    if has("nbdinfo") {
        run_program("nbdinfo", &[&encrypted_uri(&offered, folder.path())]);
    }
}

#[test]
fn peers_without_tls_are_disconnected() {
    let Some(folder) = certificates() else { return };
    let served = served(folder.path(), TlsPolicy::Required, false);
    let mut liar = Client::connect(&served.socket);
    assert_eq!(liar.option(OPT_STARTTLS, &[])[0].0, ACK);
    liar.send(&option_bytes(OPT_LIST, &[]));
    // At most an alert arrives.
    let mut rest = Vec::new();
    let _ = std::io::Read::read_to_end(&mut liar.stream, &mut rest);
    assert!(rest.len() < 100 && !rest.windows(4).any(|part| part == b"tank"), "{rest:?}");
    let mut silent = Client::connect(&served.socket);
    assert_eq!(silent.option(OPT_STARTTLS, &[])[0].0, ACK);
    assert!(silent.is_closed(), "negotiation has its time");
    // Unencrypted data after STARTTLS could be injected by an attacker.
    let mut hasty = Client::connect(&served.socket);
    hasty.send(&[option_bytes(OPT_STARTTLS, &[]), option_bytes(OPT_LIST, &[])].concat());
    served.wait_for_notice("unencrypted data after asking for TLS");
    served.wait_for_notice("negotiation took longer");
}

#[test]
fn unusable_tls_files_are_named() {
    let Some(folder) = certificates() else { return };
    let path = |name: &str| folder.path().join(name);
    let load = |certificate: &str, key: &str, authority: Option<&str>| {
        let authority = authority.map(path);
        Tls::load(&path(certificate), &path(key), authority.as_deref())
            .map(drop)
            .map_err(|error| error.to_string())
    };
    load("server-cert.pem", "server-key.pem", Some("ca-cert.pem")).expect("all is there");
    for (certificate, key, authority, named) in [
        ("missing.pem", "server-key.pem", None, "missing.pem"),
        ("server-key.pem", "server-key.pem", None, "server-key.pem"),
        ("server-cert.pem", "server-cert.pem", None, "server-cert.pem"),
        ("server-cert.pem", "server-key.pem", Some("extensions"), "extensions"),
        ("server-cert.pem", "client-key.pem", None, "certificate and key"),
    ] {
        let error = load(certificate, key, authority).expect_err("cannot be used");
        assert!(error.contains(named), "{error}");
    }
}

/// Handshake of a client with a server, and the tickets after it; its kind for the server.
fn shake(client: &Arc<ClientConfig>, server: &Tls) -> HandshakeKind {
    let name = ServerName::try_from("localhost").expect("a name");
    let mut client = ClientConnection::new(client.clone(), name).expect("a client");
    let mut server = ServerConnection::new(server.server_config()).expect("a server");
    while client.wants_write() || server.wants_write() {
        let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
        client.write_tls(&mut to_server).expect("written");
        server.read_tls(&mut &to_server[..]).expect("read");
        server.process_new_packets().expect("a client that may come in");
        server.write_tls(&mut to_client).expect("written");
        client.read_tls(&mut &to_client[..]).expect("read");
        client.process_new_packets().expect("a server that it knows");
    }
    server.handshake_kind().expect("a handshake")
}

#[test]
fn client_certificates_are_verified_each_time() {
    let Some(folder) = certificates() else { return };
    let path = |name: &str| folder.path().join(name);
    let certificate = |name: &str| CertificateDer::from_pem_file(path(name)).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(certificate("ca-cert.pem")).expect("an authority");
    for (authority, kind) in [(None, HandshakeKind::Resumed), (Some("ca-cert.pem"), HandshakeKind::Full)] {
        let authority = authority.map(path);
        let server = Tls::load(&path("server-cert.pem"), &path("server-key.pem"), authority.as_deref());
        let server = server.expect("a server");
        for version in rustls::ALL_VERSIONS {
            let key = PrivateKeyDer::from_pem_file(path("client-key.pem")).expect("a key");
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let client = ClientConfig::builder_with_provider(provider)
                .with_protocol_versions(&[version])
                .expect("a version")
                .with_root_certificates(roots.clone())
                .with_client_auth_cert(vec![certificate("client-cert.pem")], key)
                .expect("a certificate");
            let client = Arc::new(client);
            assert_eq!(shake(&client, &server), HandshakeKind::Full, "{version:?}");
            assert_eq!(shake(&client, &server), kind, "{version:?}");
        }
    }
}
