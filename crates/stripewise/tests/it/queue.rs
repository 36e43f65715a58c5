//! The command queue of a daemon: commands of departed clients are dropped, read-only commands do
//! not wait, and pools are imported and exported while a command runs.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::kit::Sandbox;
use crate::kit::daemon::{Daemon, until};
use crate::kit::web::Web;

/// Time limit of a read-only command while a change is running.
const AT_ONCE: Duration = Duration::from_secs(10);

/// A command that has its turn for some seconds: the drive that it adds is slow.
struct Slow(Child);

impl Slow {
    fn begin(sandbox: &Sandbox) -> Self {
        sandbox.ok("drive make @slow --count 1 --size 64MiB --pace 500kB/s,1000iops");
        let drive = sandbox.path("slow/drive0.img");
        let allocated = || drive.metadata().expect("there").blocks();
        let before = allocated();
        let child = sandbox.command("pool add tank @slow/drive0.img").spawn().expect("started");
        until("the drive is written to", || allocated() > before);
        Self(child)
    }

    fn end(mut self) {
        assert!(self.0.wait().expect("ended").success());
    }
}

fn with_volume() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("volume create tank/a --layout raid1 --size 8MiB");
    sandbox
}

fn begin_delete(sandbox: &Sandbox, daemon: &Daemon) -> Child {
    let child = sandbox.command("volume delete tank/a --yes").spawn().expect("started");
    until("it waits for its turn", || daemon.said().contains("waits for its turn"));
    child
}

#[test]
fn a_queued_command_of_a_departed_caller_never_runs() {
    let sandbox = with_volume();
    let daemon = Daemon::start(&sandbox, "--log-level debug");
    let slow = Slow::begin(&sandbox);
    let mut left = begin_delete(&sandbox, &daemon);
    left.kill().expect("killed");
    left.wait().expect("ended");
    until("it is forgotten", || daemon.said().contains("left before its turn"));
    slow.end();
    // Queued after all waiting commands.
    sandbox.ok("pool set tank space-warning=90");
    assert_eq!(sandbox.json("volume list")["volumes"][0]["name"], "a");
    daemon.end();
}

#[test]
fn reads_do_not_wait_behind_queued_commands() {
    let sandbox = with_volume();
    let daemon = Daemon::start(&sandbox, "--log-level debug");
    let web = Web::own(&sandbox);
    let slow = Slow::begin(&sandbox);
    let waiting = begin_delete(&sandbox, &daemon);
    for _ in 0..200 {
        drop(web.send("GET", "/api/v1/pools", &[], b""));
    }
    let begin = Instant::now();
    sandbox.ok("pool status tank");
    sandbox.ok("volume show tank/a");
    until("it is answered", || web.ask("GET", "/api/v1/pools", serde_json::Value::Null).0 == 200);
    assert!(begin.elapsed() < AT_ONCE, "{:?}", begin.elapsed());
    // Volumes can be read as well.
    assert_eq!(sandbox.read("tank/a", 0, 4096), vec![0; 4096]);
    slow.end();
    assert!(waiting.wait_with_output().expect("ended").status.success());
    assert!(sandbox.json("volume list")["volumes"].as_array().expect("volumes").is_empty());
    daemon.end();
}

#[test]
fn new_pools_are_served_while_a_command_runs() {
    let sandbox = with_volume();
    let daemon = Daemon::start(&sandbox, "");
    let slow = Slow::begin(&sandbox);
    sandbox.ok("drive make @e --count 2 --size 32MiB");
    sandbox.ok("pool create other @e/drive0.img @e/drive1.img");
    until("the other pool is served", || daemon.said().contains("pool other is now served"));
    slow.end();
    daemon.end();
}

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &(body.len() as u32).to_le_bytes(), body].concat()
}

#[test]
fn unrequested_input_is_not_buffered() {
    let sandbox = with_volume();
    let daemon = Daemon::start(&sandbox, "");
    let slow = Slow::begin(&sandbox);
    let mut stream = UnixStream::connect(sandbox.path("home/control.sock")).expect("it listens");
    stream.set_write_timeout(Some(AT_ONCE)).expect("set");
    let command = serde_json::json!({
        "version": 2, "request": {"ask": "delete_volume", "of": {"volume": "tank/a", "yes": true}},
        "json": false, "quiet": false, "folder": "/",
        "colours": {"out": false, "err": false}, "input_bytes": null
    });
    stream.write_all(&frame(b'C', command.to_string().as_bytes())).expect("sent");
    let input = frame(b'I', &vec![7; 1 << 20]);
    let refused = (0..64).any(|_| stream.write_all(&input).is_err());
    assert!(refused, "the daemon took 64 MiB that it did not ask for");
    slow.end();
    // Its client was disconnected, so the command never ran.
    sandbox.ok("pool set tank space-warning=90");
    assert_eq!(sandbox.json("volume list")["volumes"][0]["name"], "a");
    daemon.end();
}
