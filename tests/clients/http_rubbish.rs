//! Input of broken or hostile HTTP clients.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use stripewise_drive::SplitMix64;

use crate::damage::damage;

/// Longer than the server's timeout for all parts of a request but the body.
const PATIENCE: Duration = Duration::from_secs(30);

/// Valid requests, then requests with bytes changed, truncated, duplicated or random; with wrong
/// lengths, huge heads, broken chunks and invalid JSON.
pub fn malformed(seed: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(seed);
    let pick =
        |random: &mut SplitMix64, from: &[&str]| from[random.below(from.len() as u64) as usize].to_owned();
    let mut bytes = Vec::new();
    for _ in 0..1 + random.below(3) {
        let method = pick(&mut random, &["GET", "POST", "PUT", "PATCH", "DELETE", "BREW", "", "get"]);
        let path = pick(
            &mut random,
            &[
                "/api/v1/pools",
                "/api/v1/pools/tank/volumes/a/bytes?offset=0&length=4096",
                "/api/v1/pools/tank/volumes/a/bytes?offset=18446744073709551615&length=18446744073709551615",
                "/api/v1/pools/%00%ff/volumes",
                "/api/v1/pools/../../../../etc/passwd",
                "/api/v1/pools/tank/scrub?x=%",
                "/metrics",
                "*",
                "http://localhost/api/v1/pools",
                "",
            ],
        );
        let body = pick(
            &mut random,
            &["", "{", "{\"name\":\"x\"}", "[[[[[[[[", "\u{0}\u{1}", "5\r\nhello\r\n0\r\n\r\n"],
        );
        bytes.extend(format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n").into_bytes());
        for _ in 0..random.below(4) {
            let header = match random.below(9) {
                0 => "Content-Length: 99999999999999999999".to_owned(),
                1 => format!("Content-Length: {}", random.below(40)),
                2 => "Transfer-Encoding: chunked".to_owned(),
                3 => format!("X-Long: {}", "x".repeat(random.below(20_000) as usize)),
                4 => "Content-Type: application/json".to_owned(),
                5 => "Expect: 100-continue".to_owned(),
                6 => "Upgrade: h2c\r\nConnection: Upgrade".to_owned(),
                7 => (0..random.below(300)).map(|n| format!("X-{n}: y\r\n")).collect(),
                _ => "no colon at all".to_owned(),
            };
            bytes.extend(format!("{header}\r\n").into_bytes());
        }
        bytes.extend(format!("\r\n{body}").into_bytes());
    }
    damage(&mut bytes, &mut random);
    bytes
}

/// Sends bytes and nothing more; the server must close the connection. Returns its answer.
pub fn send_and_be_left(socket: &Path, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(socket);
    // The server may close the connection before everything was sent.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    rest(&mut stream)
}

/// Answer to a well-behaved client that requests the pools.
pub fn ask_for_pools(socket: &Path) -> Vec<u8> {
    let mut stream = connect(socket);
    let request = "GET /api/v1/pools HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    match stream.write_all(request.as_bytes()) {
        Ok(()) => rest(&mut stream),
        // Too many connections.
        Err(_) => Vec::new(),
    }
}

/// Connects with timeouts.
pub fn connect(socket: &Path) -> UnixStream {
    let stream = UnixStream::connect(socket).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.set_write_timeout(Some(PATIENCE)).expect("set");
    stream
}

/// Reads until the server closes the connection.
pub fn rest(stream: &mut impl Read) -> Vec<u8> {
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "the server leaves: {error}"),
    }
    answer
}
