//! Callers with few rights that take all they can get: others are served as if they were alone.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::kit::daemon::{Daemon, until};
use crate::kit::web::{Web, Wire, free_port};
use crate::kit::{Sandbox, unique_bytes};

const READER: &str = "READREADREADREAD";
const ADMIN: &str = "ADMINADMINADMIN1";

/// A daemon on a port, with a token for each role.
fn start(sandbox: &Sandbox, words: &str) -> (Daemon, u16) {
    let (port, tokens) = (free_port(), sandbox.path("tokens"));
    let text =
        format!("token eyes read {READER}\ntoken hands operate OPERATEOPERATE12\ntoken all admin {ADMIN}\n");
    std::fs::write(&tokens, text).expect("written");
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).expect("set");
    (Daemon::start(sandbox, &format!("--http {port} --http-token-file @tokens {words}")), port)
}

/// Answers of this length or more are left unread.
const SHORT_BYTES: usize = 64 << 10;

/// Sends a request on a connection that is kept; returns the status.
fn ask(wire: &mut dyn Wire, path: &str, token: Option<&str>) -> String {
    let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    wire.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{token}\r\n").as_bytes())
        .expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        wire.read_exact(&mut byte).expect("an answer");
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let length = head.split_once("content-length: ").expect("its length").1;
    let length: usize = length.lines().next().expect("a line").parse().expect("a number");
    if length < SHORT_BYTES {
        wire.read_exact(&mut vec![0; length]).expect("all of it");
    }
    head[9..12].to_owned()
}

#[test]
fn a_reader_leaves_places_for_admin_and_owner() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    let (daemon, port) = start(&sandbox, "");
    let [reader, admin] = [READER, ADMIN].map(|token| Web::tcp(port, Some(token)));
    let mut held = Vec::new();
    let refused = loop {
        let mut wire = reader.connect();
        match ask(&mut *wire, "/nope", Some(READER)).as_str() {
            "404" => held.push(wire),
            refused => break refused.to_owned(),
        }
    };
    assert_eq!((held.len(), refused.as_str()), (64, "503"));
    // Unauthenticated connections do not hold others' places for long either.
    let strangers: Vec<_> = (0..32).map(|_| reader.connect()).collect();
    assert_eq!(Web::own(&sandbox).ask("GET", "/api/v1/pools", Value::Null).0, 200);
    drop(strangers);
    until("a connection may come", || admin.ask("GET", "/api/v1/pools", Value::Null).0 == 200);
    assert_eq!(ask(&mut *held[0], "/nope", Some(ADMIN)), "404", "another caller on the same connection");
    drop(held);
    until("their places are free", || reader.ask("GET", "/api/v1/pools", Value::Null).0 == 200);
    daemon.end();
}

#[test]
fn unread_answers_keep_no_admin_from_memory() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid0 --size 32MiB");
    let (daemon, port) = start(&sandbox, "--connection-memory 64MiB");
    let (hands, admin) = (Web::tcp(port, Some("OPERATEOPERATE12")), Web::tcp(port, Some(ADMIN)));
    let bytes = "/api/v1/pools/tank/volumes/a/bytes?length=16777216";
    // Each is answered, and reads no more than the first bytes.
    let mut held = Vec::new();
    let refused = loop {
        let mut wire = hands.connect();
        match ask(&mut *wire, bytes, Some("OPERATEOPERATE12")).as_str() {
            "200" => held.push(wire),
            refused => break refused.to_owned(),
        }
        assert!(held.len() < 9, "they share the available memory");
    };
    assert_eq!(refused, "503");
    let (status, whole) = admin.ask_raw("GET", bytes, &[], b"");
    assert_eq!((status, whole.len()), (200, 16 << 20));
    let written = unique_bytes(1 << 20, 1);
    assert_eq!(admin.ask_raw("PUT", "/api/v1/pools/tank/volumes/a/bytes", &[], &written).0, 200);
    drop(held);
    until("it is given back", || hands.ask_raw("GET", bytes, &[], b"").0 == 200);
    daemon.end();
}
