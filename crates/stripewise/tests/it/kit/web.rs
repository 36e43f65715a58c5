//! A client of a daemon's HTTP interface, over its socket file or an address.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serde_json::Value;

use super::Sandbox;

/// A daemon's HTTP interface.
#[derive(Clone)]
pub struct Web {
    place: Place,
    /// Sent with each request.
    pub token: Option<String>,
}

#[derive(Clone)]
enum Place {
    Unix(PathBuf),
    Tcp(u16),
}

/// A connection.
pub trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

impl Web {
    /// The daemon's own socket, in the state folder of a sandbox.
    pub fn own(sandbox: &Sandbox) -> Self {
        Self::unix(sandbox.path("home/http.sock"))
    }

    pub fn unix(path: PathBuf) -> Self {
        Self { place: Place::Unix(path), token: None }
    }

    /// A port of this machine.
    pub fn tcp(port: u16, token: Option<&str>) -> Self {
        Self { place: Place::Tcp(port), token: token.map(str::to_owned) }
    }

    pub fn connect(&self) -> Box<dyn Wire> {
        match &self.place {
            Place::Unix(path) => Box::new(UnixStream::connect(path).expect("it listens")),
            Place::Tcp(port) => Box::new(TcpStream::connect(("127.0.0.1", *port)).expect("it listens")),
        }
    }

    /// Sends a request; the answer is to be read from the connection.
    pub fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Box<dyn Wire> {
        let mut stream = self.connect();
        let mut head =
            format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
        if !headers.iter().any(|(name, _)| *name == "Host") {
            head += "Host: localhost\r\n";
        }
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        if let Some(token) = &self.token {
            head += &format!("Authorization: Bearer {token}\r\n");
        }
        stream.write_all(format!("{head}\r\n").as_bytes()).expect("sent");
        // It may have said no already.
        let _ = stream.write_all(body);
        stream
    }

    /// Asks; the whole answer.
    pub fn answer(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
        let mut answer = Vec::new();
        match self.send(method, path, headers, body).read_to_end(&mut answer) {
            // A body that was refused before it was read ends the connection with a reset.
            Err(error) if error.kind() == ErrorKind::ConnectionReset && !answer.is_empty() => {}
            result => drop(result.expect("an answer")),
        }
        answer
    }

    /// Asks; the status and the body.
    pub fn ask_raw(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, Vec<u8>) {
        let answer = self.answer(method, path, headers, body);
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        let status = std::str::from_utf8(&answer[9..12]).expect("text").parse().expect("a status");
        (status, answer[end + 4..].to_vec())
    }

    /// Asks with a JSON document, none where it is null.
    pub fn ask(&self, method: &str, path: &str, body: Value) -> (u16, Value) {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let (status, answer) =
            self.ask_raw(method, path, &[("Content-Type", "application/json")], text.as_bytes());
        (status, serde_json::from_slice(&answer).unwrap_or(Value::Null))
    }

    /// As [`Self::ask`]; it must be done.
    pub fn ok(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, answer) = self.ask(method, path, body);
        assert_eq!(status, 200, "{method} {path}: {answer}");
        answer
    }
}

/// A port that is free now.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a port")
        .port()
}
