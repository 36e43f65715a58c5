//! Log and metrics of a daemon; jobs resume after a kill -9; clients that wait for a job and
//! clients that change the pool do not block each other.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Output;

use crate::kit::daemon::{Daemon, until};
use crate::kit::web::Web;
use crate::kit::{Sandbox, corrupt, unique_bytes};
use serde_json::Value;

/// Output of a daemon that was started with this environment, used by some commands, and stopped.
fn said_by(sandbox: &Sandbox, words: &str, environment: &[(&str, &str)], between: impl Fn()) -> String {
    let daemon = Daemon::start_with(sandbox, words, environment);
    between();
    daemon.end()
}

#[test]
fn daemon_events_are_logged() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    let use_it = || {
        sandbox.run("pool online tank @d/drive1.img --wait");
        sandbox.ok("volume create tank/a --layout raid5 --size 8MiB");
        sandbox.ok("pool status tank");
        sandbox.ok("pool scrub tank --wait");
        // The listen addresses.
        drop(UnixStream::connect(sandbox.path("nbd.sock")));
        sandbox.ok("pool offline tank @d/drive1.img");
        sandbox.ok("volume delete tank/a --yes");
    };
    let said = said_by(&sandbox, "--nbd unix:nbd.sock --log-format json", &[], use_it);
    let lines: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("JSON: {line}")))
        .collect();
    let has = |wanted: Value| {
        let wanted = wanted.as_object().expect("fields").clone();
        assert!(
            lines.iter().any(|line| wanted.iter().all(|(name, value)| line[name] == *value)),
            "{wanted:?} in {said}"
        );
    };
    has(
        serde_json::json!({"level": "INFO", "target": "pool", "message": "opened", "pool": "tank", "drives": 3}),
    );
    has(
        serde_json::json!({"target": "command", "command": "pool scrub tank --wait", "way": "socket", "exit_code": 0}),
    );
    has(
        serde_json::json!({"target": "pool", "pool": "tank", "kind": "volume", "message": "volume a was deleted"}),
    );
    has(serde_json::json!({"target": "client", "level": "INFO"}));
    has(serde_json::json!({"target": "alert", "level": "WARN", "kind": "state", "pool": "tank"}));
    has(serde_json::json!({"target": "pool", "message": "closed", "pool": "tank"}));
    let drive = sandbox.run("pool status tank --json").json()["pools"][0]["drives"][1]["id"].clone();
    has(serde_json::json!({"target": "pool", "kind": "drive", "drive": drive}));
    assert!(!said.contains("pool status"), "who only looks is not worth a line: {said}");
    assert!(lines.iter().all(|line| line["timestamp"].is_string()), "{said}");

    // Text for a terminal; text for systemd's journal, which has its own times; a higher log level.
    let text = said_by(&sandbox, "", &[], use_it);
    let opened = text.lines().find(|line| line.contains("opened")).expect("said");
    assert!(opened.contains("INFO pool: opened pool=\"tank\""), "{opened}");
    assert!(opened.starts_with("20"), "a time: {opened}");
    let journal = said_by(&sandbox, "", &[("JOURNAL_STREAM", "8:1")], use_it);
    assert!(journal.contains("<6> INFO pool: opened") && journal.contains("<4> WARN alert:"), "{journal}");
    let warnings = said_by(&sandbox, "", &[("STRIPEWISE_LOG", "warn")], use_it);
    assert!(warnings.lines().all(|line| line.contains("WARN")) && !warnings.is_empty(), "{warnings}");
    let quiet = said_by(&sandbox, "--quiet --log-level alert=off", &[], use_it);
    assert_eq!(quiet, "");
    let looks = said_by(&sandbox, "--log-level off,command=debug", &[], use_it);
    assert!(looks.contains("pool status") && !looks.contains("opened"), "{looks}");

    let wrong = sandbox.run("serve --log-level loud").expect_code(2).err;
    assert!(wrong.contains("`loud` is no level"), "{wrong}");
    let failed = sandbox.fails("serve nothing --log-format json");
    let failed: Value = serde_json::from_str(failed.trim()).expect("JSON");
    assert!(failed["level"] == "ERROR" && failed["hint"].is_string(), "{failed}");
}

#[test]
fn an_unread_log_does_not_block_the_daemon() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    let daemon = Daemon::start(&sandbox, "--log-level debug");
    let command = serde_json::json!({
        "version": 2, "request": {"ask": "show_drives", "of": {"drives": ["x".repeat(900)]}},
        "json": false, "quiet": false, "folder": "/",
        "colours": {"out": false, "err": false}, "input_bytes": null
    });
    // Errors, which are logged: more than a pipe holds.
    let body = command.to_string();
    let frame = [b"C".as_slice(), &(body.len() as u32).to_le_bytes(), body.as_bytes()].concat();
    for _ in 0..200 {
        let mut stream = UnixStream::connect(sandbox.path("home/control.sock")).expect("it listens");
        stream.write_all(&frame).expect("sent");
        stream.read_to_end(&mut Vec::new()).expect("answered");
    }
    sandbox.ok("pool status tank");
    daemon.end();
}

/// The daemon's metrics.
fn figures(web: &Web) -> String {
    let (status, figures) = web.ask_raw("GET", "/metrics", &[], b"");
    assert_eq!(status, 200);
    String::from_utf8(figures).expect("text")
}

#[test]
fn metrics_match_what_clients_see() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    let web = Web::own(&sandbox);
    let daemon = Daemon::start(&sandbox, "--nbd unix:nbd.sock --vhost-user @vm");
    sandbox.ok("volume create tank/a --layout raid5 --size 16MiB");
    sandbox.write("tank/a", 0, &unique_bytes(3 << 20, 1));
    sandbox.read("tank/a", 0, 1 << 20);
    let text = figures(&web);
    let value = |name: &str| -> f64 {
        let line =
            text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        line.trim().parse().expect("a number")
    };
    let of = |name: &str, operation: &str, more: &str| {
        value(&format!("{name}{{pool=\"tank\",volume=\"a\",operation=\"{operation}\"{more}}}"))
    };
    let seconds = "stripewise_volume_request_seconds";
    for operation in ["read", "write", "flush"] {
        let count = of(&format!("{seconds}_count"), operation, "");
        assert!(count >= 1.0, "{operation}: {text}");
        assert_eq!(of(&format!("{seconds}_bucket"), operation, ",le=\"+Inf\""), count);
        assert!(of(&format!("{seconds}_bucket"), operation, ",le=\"10\"") <= count);
        assert!(of(&format!("{seconds}_sum"), operation, "") > 0.0);
    }
    assert_eq!(of("stripewise_volume_request_bytes_total", "write", ""), f64::from(3 << 20));
    assert_eq!(of("stripewise_volume_failed_requests_total", "write", ""), 0.0);
    let volume = "{pool=\"tank\",volume=\"a\"}";
    assert_eq!(value(&format!("stripewise_volume_queue_depth{volume}")), 0.0);
    let journal = value(&format!("stripewise_volume_journal_size_bytes{volume}"));
    assert!(journal > 0.0 && value(&format!("stripewise_volume_journal_used_bytes{volume}")) <= journal);
    assert_eq!(value("stripewise_fuse_requests_under_way"), 0.0);
    assert_eq!(value("stripewise_nbd_connections_total"), 0.0);
    let client = UnixStream::connect(sandbox.path("nbd.sock")).expect("it listens");
    until("it counts", || figures(&web).contains("\nstripewise_nbd_connections 1\n"));
    drop(client);
    assert_eq!(value("stripewise_vhost_connections_total"), 0.0);
    let socket = sandbox.path("vm/tank/a");
    until("a socket", || socket.exists());
    let front_end = UnixStream::connect(socket).expect("it listens");
    until("it counts", || figures(&web).contains("\nstripewise_vhost_connections 1\n"));
    drop(front_end);

    // The documentation lists exactly these metrics; job metrics exist only while jobs are pending.
    let documented = include_str!("../../../../docs/daemon.md");
    let there = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let there: Vec<&str> = there.collect();
    for name in &there {
        assert!(documented.contains(&format!("`{name}`")), "{name} is not in docs/daemon.md");
    }
    for name in documented.split('`').filter(|word| word.starts_with("stripewise_")) {
        assert!(there.contains(&name), "{name} is in docs/daemon.md alone");
    }
    daemon.end();
}

/// Progress of a job in percent; `None` without a job.
fn percent(sandbox: &Sandbox, kind: &str) -> Option<f64> {
    let status = sandbox.run("pool status tank --json").json();
    let jobs = status["pools"][0]["activity"].as_array().expect("jobs").clone();
    jobs.iter().find(|job| job["kind"] == kind).and_then(|job| job["percent"].as_f64())
}

#[test]
fn a_scrub_resumes_after_a_kill() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 4 --size 160MiB");
    sandbox.ok("pool create tank @d/drive0.img @d/drive1.img @d/drive2.img @d/drive3.img");
    sandbox.ok("volume create tank/a --layout raid5 --size 24MiB");
    sandbox.ok("volume create tank/b --layout raid5 --size 96MiB");
    sandbox.write("tank/a", 0, &unique_bytes(24 << 20, 2));
    let data = unique_bytes(96 << 20, 1);
    sandbox.write("tank/b", 0, &data);
    sandbox.ok("pool set tank patrol-rate=30MB");
    let daemon = Daemon::start(&sandbox, "");
    sandbox.ok("pool scrub tank");
    // The position within a volume is recorded every 30 s, completed volumes at once.
    let volumes = || {
        let status = sandbox.run("pool status tank --json").json();
        let jobs = status["pools"][0]["activity"].as_array().expect("jobs").clone();
        jobs.into_iter().filter(|job| job["kind"] == "scrub").collect::<Vec<_>>()
    };
    until("one volume is done", || {
        let jobs = volumes();
        jobs.len() == 1 && jobs[0]["volume"] == "b" && jobs[0]["percent"].as_f64() > Some(1.0)
    });
    daemon.kill();
    // Corrupt the part that the scrub has not reached.
    let last = &data[data.len() - 400_000..];
    let place = sandbox.place_of(3, last);
    corrupt(&sandbox.path("d/drive3.img"), place, 4096);
    let daemon = Daemon::start(&sandbox, "");
    let jobs = volumes();
    assert!(jobs.len() == 1 && jobs[0]["volume"] == "b", "the scrub resumes: {jobs:?}");
    sandbox.ok("pool set tank patrol-rate=none");
    until("it ends", || percent(&sandbox, "scrub").is_none());
    let status = sandbox.json("pool status tank");
    let drives = status["pools"][0]["drives"].as_array().expect("drives");
    let errors: u64 = drives.iter().filter_map(|drive| drive["checksum_errors"].as_u64()).sum();
    assert!(errors > 0, "corrupt blocks are found: {status}");
    assert!(sandbox.read("tank/b", 0, data.len()) == data);
    daemon.end();
}

#[test]
fn a_conversion_resumes_after_a_kill() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 4 --size 96MiB --pace 12MB/s");
    sandbox.ok("pool create tank @d/drive0.img @d/drive1.img @d/drive2.img @d/drive3.img");
    sandbox.ok("volume create tank/a --layout raid0 --size 48MiB");
    let data = unique_bytes(48 << 20, 1);
    sandbox.write("tank/a", 0, &data);
    let daemon = Daemon::start(&sandbox, "");
    sandbox.ok("volume convert tank/a --layout raid5");
    until("some is done", || percent(&sandbox, "convert") > Some(10.0));
    daemon.kill();
    let before = sandbox.json("volume show tank/a")["volumes"][0]["conversion"]["percent"].as_f64();
    assert!(before < Some(100.0) && before.is_some(), "{before:?}");
    let daemon = Daemon::start(&sandbox, "");
    assert!(sandbox.read("tank/a", 0, 1 << 20) == data[..1 << 20]);
    until("it ends by itself", || percent(&sandbox, "convert").is_none());
    let volume = sandbox.json("volume show tank/a")["volumes"][0].clone();
    assert!(volume["layout"] == "raid5" && volume["conversion"].is_null(), "{volume}");
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    daemon.end();
}

#[test]
fn waiting_clients_block_no_changes_and_never_hang() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 6 --size 128MiB");
    sandbox.ok("pool create tank @d/drive0.img @d/drive1.img @d/drive2.img @d/drive3.img");
    sandbox.ok("volume create tank/a --layout raid5 --size 64MiB");
    let data = unique_bytes(64 << 20, 1);
    sandbox.write("tank/a", 0, &data);
    sandbox.ok("pool set tank patrol-rate=5MB");
    let daemon = Daemon::start(&sandbox, "");
    let begin = |words: &str| sandbox.command(words).spawn().expect("started");
    let waiting =
        [begin("pool scrub tank --wait"), begin("pool scrub tank --wait"), begin("pool wait tank scrub")];
    until("it has begun", || percent(&sandbox, "scrub") > Some(1.0));
    // Waiting clients do not delay changes.
    sandbox.ok("volume create tank/b --layout raid1 --columns 2 --size 8MiB");
    sandbox.ok("volume delete tank/b --yes");
    assert!(percent(&sandbox, "scrub").is_some(), "they did not wait for it");
    sandbox.ok("pool set tank patrol-rate=none");
    let says = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    for waiting in waiting {
        let output = waiting.wait_with_output().expect("ended");
        assert!(output.status.success(), "{}", says(&output));
    }

    // Two clients request the same change: one succeeds, the other gets an error.
    let words = "pool replace tank @d/drive1.img @d/drive4.img --wait";
    let both = [begin(words), begin(words)].map(|child| child.wait_with_output().expect("ended"));
    assert_eq!(both.iter().filter(|output| output.status.success()).count(), 1, "{both:?}");
    let is_told = |output: &Output| says(output).lines().any(|line| line.starts_with("error: "));
    assert!(both.iter().any(is_told), "{both:?}");
    sandbox.run("pool status tank").expect_code(0);
    // The new drive is locked, the old one released.
    std::fs::rename(sandbox.path("d/drive4.img"), sandbox.path("pulled.img")).expect("moved");
    until("that is noticed", || sandbox.run("pool status tank").code == 3);
    std::fs::rename(sandbox.path("pulled.img"), sandbox.path("d/drive4.img")).expect("moved");
    sandbox.ok("pool online tank @d/drive4.img --wait");
    sandbox.ok("pool create other @d/drive1.img --force");

    // The pool is destroyed: the waiting clients get an error, and none hangs.
    sandbox.ok("pool set tank patrol-rate=4MB");
    sandbox.ok("pool scrub tank");
    let waiting = begin("pool wait tank scrub");
    until("it has begun", || percent(&sandbox, "scrub") > Some(1.0));
    sandbox.ok("pool destroy tank --yes");
    let output = waiting.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(1), "{}", says(&output));
    daemon.end();
}

#[test]
fn a_disconnected_http_client_stops_waiting() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 3 --size 128MiB");
    sandbox.ok("pool create tank @d/drive0.img @d/drive1.img @d/drive2.img");
    sandbox.ok("volume create tank/a --layout raid5 --size 48MiB");
    sandbox.write("tank/a", 0, &unique_bytes(48 << 20, 1));
    sandbox.ok("pool set tank patrol-rate=4MB");
    let web = Web::own(&sandbox);
    let daemon = Daemon::start(&sandbox, "");
    let ask = |method: &str, path: &str| String::from_utf8(web.answer(method, path, &[], b"")).expect("text");
    let logged =
        |text: &str| daemon.said().lines().any(|line| line.contains("pool wait") && line.contains(text));

    sandbox.ok("pool scrub tank");
    let waiting = web.send("POST", "/api/v1/pools/tank/wait?job=scrub", &[], b"");
    until("it has begun", || percent(&sandbox, "scrub") > Some(1.0));
    assert!(!logged("exit_code"), "it waits");
    drop(waiting);
    until("the waiting ends", || logged("exit_code=1"));
    assert!(percent(&sandbox, "scrub").is_some(), "the scrub continues");
    sandbox.ok("pool set tank patrol-rate=none");
    let done = ask("POST", "/api/v1/pools/tank/wait?job=scrub");
    assert!(done.starts_with("HTTP/1.1 200") && done.contains("\"pools\""), "{done}");

    let drives = serde_json::json!({"drives": [sandbox.text("d/drive0.img")]});
    let shown = web.ok("POST", "/api/v1/drives/show", drives);
    assert!(shown["drives"][0]["superblock"].is_object(), "{shown}");
    assert_eq!(web.ask("POST", "/api/v1/drives/show", serde_json::json!({"path": "/x"})).0, 422);
    assert!(ask("GET", "/api/v1/known-pools").contains("\"tank\""));
    let alerts = ask("POST", "/api/v1/alerts/test");
    assert!(alerts.starts_with("HTTP/1.1 409") && alerts.contains("no way to send alerts"), "{alerts}");
    let load = ask("GET", "/api/v1/pools/tank/iostat");
    assert!(load.contains("\"volumes\""), "{load}");
    daemon.end();
}
