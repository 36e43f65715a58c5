//! Limits of the role `operate`: files that are none of the pools' stay as they are, and other
//! callers are served.

use std::net::TcpListener;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::kit::daemon::Daemon;
use crate::kit::web::{Web, free_port};
use crate::kit::{DRIVE_SIZE, Sandbox, unique_bytes};

const HANDS: &str = "hands-0123456789abcdef";
const HEAD: &str = "head-0123456789abcdef";

/// A daemon with a pool of two drives, a folder `allowed` for drives, and two tokens.
fn served(sandbox: &Sandbox) -> (Daemon, u16) {
    sandbox.pool(2);
    sandbox.ok(&format!("drive make @allowed --count 2 --size {DRIVE_SIZE}"));
    sandbox.ok(&format!("drive make @home-of-another --count 1 --size {DRIVE_SIZE}"));
    let (port, tokens) = (free_port(), sandbox.path("tokens"));
    std::fs::write(&tokens, format!("token hands operate {HANDS}\ntoken head admin {HEAD}\n"))
        .expect("written");
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).expect("set");
    let words = format!("--http {port} --http-token-file @tokens --drive-dirs @allowed");
    (Daemon::start(sandbox, &words), port)
}

fn add(port: u16, token: &str, drive: &str) -> (u16, Value) {
    let body = json!({"drives": [drive], "role": "spare"});
    Web::tcp(port, Some(token)).ask("POST", "/api/v1/pools/tank/drives", body)
}

#[test]
fn an_operator_overwrites_no_file_outside_its_folders() {
    let sandbox = Sandbox::new();
    let (daemon, port) = served(&sandbox);
    // It begins with zeros, as images of some file systems do.
    let path = sandbox.path("home-of-another/drive0.img");
    let file = std::fs::OpenOptions::new().write(true).open(&path).expect("there");
    file.write_all_at(&unique_bytes(1 << 20, 3), 20 << 20).expect("written");
    let link = sandbox.path("allowed/link.img");
    std::os::unix::fs::symlink(&path, &link).expect("linked");
    let before = std::fs::read(&path).expect("readable");
    for name in ["home-of-another/drive0.img", "allowed/link.img", "d/../home-of-another/drive0.img"] {
        let (status, answer) = add(port, HANDS, &sandbox.text(name));
        assert_eq!(status, 403, "{name}: {answer}");
        assert!(answer["detail"].as_str().is_some_and(|text| text.contains("role admin")), "{answer}");
    }
    // An admin is asked to say that it is meant.
    let (status, answer) = add(port, HEAD, &sandbox.text("home-of-another/drive0.img"));
    assert!(
        status == 409 && answer["detail"].as_str().is_some_and(|text| text.contains("data of an unknown")),
        "{answer}"
    );
    assert!(std::fs::read(&path).expect("readable") == before, "nothing was changed");
    // Data in an allowed folder is not overwritten either; an empty file is taken.
    let allowed = sandbox.path("allowed/drive0.img");
    let file = std::fs::OpenOptions::new().write(true).open(&allowed).expect("there");
    file.write_all_at(b"x", 25 << 20).expect("written");
    assert_eq!(add(port, HANDS, &sandbox.text("allowed/drive0.img")).0, 409);
    assert_eq!(add(port, HANDS, &sandbox.text("allowed/drive1.img")).0, 200);
    daemon.end();
}

#[test]
fn a_known_path_is_not_a_right_to_what_is_there_now() {
    let sandbox = Sandbox::new();
    let (daemon, port) = served(&sandbox);
    let show = |token: &str| {
        let body = json!({"drives": [sandbox.text("d/drive1.img")]});
        Web::tcp(port, Some(token)).ask("POST", "/api/v1/drives/show", body)
    };
    assert_eq!(show(HANDS).0, 200, "a drive of a pool");
    // Another user's empty file, in the place of a drive.
    let foreign = sandbox.path("home-of-another/drive0.img");
    std::fs::rename(sandbox.drive_path(1), sandbox.path("pulled.img")).expect("moved");
    std::os::unix::fs::symlink(&foreign, sandbox.drive_path(1)).expect("linked");
    let before = std::fs::read(&foreign).expect("readable");
    let (status, answer) = add(port, HANDS, &sandbox.text("d/drive1.img"));
    assert_eq!(status, 403, "{answer}");
    assert_eq!(show(HANDS).0, 403);
    assert_eq!(show(HEAD).0, 200);
    assert!(std::fs::read(&foreign).expect("readable") == before, "nothing was changed");
    // The drive itself is known under its path, also through a link.
    std::fs::remove_file(sandbox.drive_path(1)).expect("removed");
    std::os::unix::fs::symlink(sandbox.path("pulled.img"), sandbox.drive_path(1)).expect("linked");
    assert_eq!(show(HANDS).0, 200);
    daemon.end();
}

#[test]
fn a_pipe_as_a_certificate_stops_no_daemon() {
    let sandbox = Sandbox::new();
    let (daemon, port) = served(&sandbox);
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = silent.local_addr().expect("bound").port();
    let pipe = sandbox.path("allowed/ca-cert.pem");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let folder = sandbox.text("allowed");
    let body = json!({"drives": [format!("nbds://127.0.0.1:{server}/x?tls-certificates={folder}")]});
    let (status, answer) = Web::tcp(port, Some(HANDS)).ask("POST", "/api/v1/drives/show", body);
    assert!(status >= 400, "{answer}");
    assert!(answer["detail"].as_str().is_some_and(|text| text.contains("it is not a file")), "{answer}");
    daemon.end();
}

#[test]
fn silent_servers_delay_no_change() {
    let sandbox = Sandbox::new();
    let (daemon, port) = served(&sandbox);
    // Connections are made, and nothing is said.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = silent.local_addr().expect("bound").port();
    let drive =
        |index| json!({"drives": [format!("nbd://127.0.0.1:{server}/x{index}?timeout=25s")]}).to_string();
    let asking: Vec<_> = (0..36)
        .map(|index| {
            let json = [("Content-Type", "application/json")];
            let web = Web::tcp(port, Some(HANDS));
            web.send("POST", "/api/v1/pools/tank/drives", &json, drive(index).as_bytes())
        })
        .collect();
    let _connected = silent.accept().expect("it connects");
    let begin = Instant::now();
    let changed = Web::tcp(port, Some(HEAD)).ask("PATCH", "/api/v1/pools/tank", json!({"space_warning": 91}));
    assert_eq!(changed.0, 200, "{}", changed.1);
    assert!(begin.elapsed() < Duration::from_secs(5), "it waited {:?}", begin.elapsed());
    drop(asking);
    daemon.kill();
}
