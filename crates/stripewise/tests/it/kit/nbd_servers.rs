//! Pools on drives behind NBD servers (nbdkit) that tests kill, stop and restart.

use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::kit::daemon::{Daemon, PATIENCE, until};
use crate::kit::{Sandbox, unique_bytes};
use crate::nbd_client::Client;

/// Timeout of requests: short enough to detect a hung server soon, long enough for a busy host.
pub const TIMEOUT: &str = "timeout=3s";
pub const MIB: usize = 1 << 20;
/// Upper bound on the bytes that a writing command has in flight.
pub const MOST_UNDER_WAY: usize = 8 * MIB;

pub fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        println!("skipped: there is no {program} here (scripts/need.sh test installs it)");
    }
    found
}

/// A server of one file; killed if the test ends before it.
pub struct Kit {
    pub child: Child,
}

impl Kit {
    /// Starts a server with these arguments before those of the file plugin, on the socket
    /// @n{index}.sock unless the arguments name another address.
    pub fn start(sandbox: &Sandbox, index: usize, words: &str) -> Self {
        Self::start_with(
            sandbox,
            index,
            words,
            &format!("file {}", sandbox.text(&format!("d/drive{index}.img"))),
        )
    }

    pub fn start_with(sandbox: &Sandbox, index: usize, words: &str, plugin: &str) -> Self {
        let socket = sandbox.path(&format!("n{index}.sock"));
        let _ = std::fs::remove_file(&socket);
        let mut command = Command::new("nbdkit");
        command.args(["-f", "-U"]).arg(&socket);
        command.args(words.split_whitespace().filter(|word| word.starts_with("--")));
        command.args(plugin.split_whitespace());
        command.args(words.split_whitespace().filter(|word| !word.starts_with("--")));
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("nbdkit starts");
        let kit = Self { child };
        // The socket file exists before the server listens.
        until("nbdkit listens", || UnixStream::connect(&socket).is_ok());
        kit
    }

    pub fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(kill.expect("kill runs").success());
    }

    /// True once the server has exited by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it can be waited for").is_some()
    }

    /// Kills the server, as if its host had failed.
    pub fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }
}

impl Drop for Kit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Resumes a stopped server. nbdkit may abort instead, when it answers a connection that has been
/// closed (1.32: "connections.c: Assertion `sock >= 0' failed"). Then it is restarted; the writes
/// that it had received are in its file.
pub fn wakes_up(sandbox: &Sandbox, kit: &mut Option<Kit>) {
    let hung = kit.as_mut().expect("there");
    hung.signal("-CONT");
    std::thread::sleep(Duration::from_millis(500));
    if hung.has_ended() {
        *kit = Some(Kit::start(sandbox, 2, ""));
    }
}

pub fn uri(index: usize) -> String {
    format!("nbd+unix:///?socket=n{index}.sock&{TIMEOUT}")
}

/// Four file servers, a pool `tank` on them, and a volume `a` with data.
pub fn served(layout: &str, seed: u64) -> (Sandbox, Vec<Option<Kit>>, Vec<u8>) {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 4 --size 64MiB");
    let kits = (0..4).map(|index| Some(Kit::start(&sandbox, index, ""))).collect();
    let uris: Vec<String> = (0..4).map(uri).collect();
    sandbox.ok(&format!("pool create tank {}", uris.join(" ")));
    sandbox.ok(&format!("volume create tank/a --layout {layout} --size 48MiB"));
    let data = unique_bytes(40 * MIB, seed);
    sandbox.write("tank/a", 0, &data);
    (sandbox, kits, data)
}

pub fn status(sandbox: &Sandbox) -> Value {
    let answer = sandbox.run("pool status tank --json");
    assert!(matches!(answer.code, 0 | 3), "{}", answer.err);
    answer.json()["pools"][0].clone()
}

pub fn drive_state(sandbox: &Sandbox, index: usize) -> String {
    status(sandbox)["drives"][index]["state"].as_str().expect("text").to_owned()
}

pub fn is_whole(sandbox: &Sandbox) -> bool {
    if sandbox.run("pool status tank").code != 0 {
        return false;
    }
    let status = status(sandbox);
    let drives = status["drives"].as_array().expect("drives");
    status["state"] == "online"
        && status["activity"].as_array().is_some_and(Vec::is_empty)
        && drives.iter().all(|drive| drive["state"] == "online")
}

/// Waits until all drives are in service and resynchronised.
pub fn until_whole(sandbox: &Sandbox, daemon: &Daemon) {
    until_whole_with(sandbox, daemon, || ());
}

/// The same, with a step between looks, for example one that restarts aborted servers.
pub fn until_whole_with(sandbox: &Sandbox, daemon: &Daemon, mut step: impl FnMut()) {
    let begin = Instant::now();
    while !is_whole(sandbox) {
        step();
        // Pauses between reconnects may exceed the time limit of other tests.
        if begin.elapsed() > 3 * PATIENCE {
            let status = sandbox.run("pool status tank").out;
            panic!("not whole:\n{}\n{}", String::from_utf8_lossy(&status), daemon.said());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Bytes written to a returned drive since it was reopened.
pub fn written_bytes(sandbox: &Sandbox, index: usize) -> u64 {
    let path = status(sandbox)["drives"][index]["path"].clone();
    let mut bytes = 0;
    // The status file that `iostat` reads may be a second old.
    until("the figures are of now", || {
        let iostat = sandbox.json("pool iostat tank");
        let drives = iostat["intervals"][0]["drives"].as_array().expect("drives").clone();
        let drive = drives.iter().find(|drive| drive["path"] == path).expect("every drive is there");
        bytes = drive["written_bytes"].as_u64().expect("a number");
        drive["state"] == "online"
    });
    bytes
}

pub fn nothing_is_wrong(sandbox: &Sandbox) {
    let scrub = sandbox.ok("pool scrub tank --wait");
    assert!(scrub.text().contains("no errors found"), "{}", scrub.text());
}

/// Writes these pieces of the volume, and the same bytes to `data`.
pub fn write_over(sandbox: &Sandbox, data: &mut [u8], pieces: std::ops::Range<usize>) {
    for piece in pieces {
        let bytes = unique_bytes(100_000, 1000 + piece as u64);
        let at = piece * 200_000;
        sandbox.write("tank/a", at as u64, &bytes);
        data[at..at + bytes.len()].copy_from_slice(&bytes);
    }
}

/// Writes to a volume whose acknowledged writes may be lost: the first request may be refused,
/// once.
pub fn write_after_loss(client: &mut Client, offset: u64, bytes: &[u8]) {
    const WRITE: u16 = 1;
    const EIO: u32 = 5;
    let refused = client.ask(WRITE, 0, offset, bytes.len() as u32, bytes);
    assert!(matches!(refused, 0 | EIO), "{refused}");
    client.write(offset, bytes);
}
