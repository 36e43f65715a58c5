//! Events of pools, as a stream over HTTP.

use std::io::{BufRead, BufReader};
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use crate::kit::daemon::{Daemon, PATIENCE, until};
use crate::kit::web::{Web, free_port};
use crate::kit::{Sandbox, unique_bytes};

/// Streams that one caller may have at the same time.
const MAX_STREAMS: usize = 8;

/// A stream, read by a thread until it ends.
struct Stream(Receiver<Value>);

impl Stream {
    fn open(web: &Web, path: &str) -> Self {
        let (told, events) = channel();
        let lines = BufReader::new(web.send("GET", path, &[], b"")).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let Some(data) = line.strip_prefix("data: ") else { continue };
                if told.send(serde_json::from_str(data).expect("a document")).is_err() {
                    return;
                }
            }
        });
        Self(events)
    }

    /// The next event; `None` if the stream has ended.
    fn next(&self) -> Option<Value> {
        use std::sync::mpsc::RecvTimeoutError;
        match self.0.recv_timeout(PATIENCE) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the stream sends nothing and does not end"),
        }
    }

    /// Passes over what comes before such an event.
    fn until(&self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        std::iter::from_fn(|| self.next()).find(is_it).unwrap_or_else(|| panic!("it ended before {what}"))
    }
}

#[test]
fn events_are_streamed_to_readers_until_shutdown() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    sandbox.ok("volume create tank/a --layout raid5 --size 8MiB");
    let (port, eyes) = (free_port(), "eyes-0123456789abcdef");
    let tokens = sandbox.path("tokens");
    std::fs::write(&tokens, format!("token eyes read {eyes}\n")).expect("written");
    std::fs::set_permissions(&tokens, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
    let daemon = Daemon::start(&sandbox, &format!("--http {port} --http-token-file @tokens"));
    assert_eq!(Web::tcp(port, None).ask("GET", "/api/v1/events", Value::Null).0, 401);
    let stream = Stream::open(&Web::tcp(port, Some(eyes)), "/api/v1/events");
    let first = stream.next().expect("how it stands");
    assert_eq!((&first["kind"], &first["pool"]), (&json!("state"), &json!("tank")), "{first}");
    assert_eq!(first["state"], "online", "{first}");

    sandbox.ok("pool offline tank @d/drive0.img");
    let is_of_drive = |event: &Value| {
        let text = event["event"]["text"].as_str().unwrap_or_default();
        event["kind"] == "event" && event["event"]["kind"] == "drive" && text.contains("drive0.img")
    };
    let (mut is_told, mut is_degraded) = (false, false);
    while !(is_told && is_degraded) {
        let event = stream.next().expect("it goes on");
        is_told |= is_of_drive(&event);
        is_degraded |= event["kind"] == "state" && event["state"] == "degraded";
    }
    sandbox.ok("pool destroy tank --yes");
    stream.until("the pool is gone", |event| *event == json!({"kind": "gone", "pool": "tank"}));
    daemon.end();
    assert!(std::iter::from_fn(|| stream.next()).count() < 10, "it ends with the daemon");
}

#[test]
fn a_withdrawn_token_ends_its_streams() {
    let sandbox = Sandbox::new();
    sandbox.pool(1);
    let (port, tokens) = (free_port(), sandbox.path("tokens"));
    let [gone, kept] = ["gone-0123456789abcdef", "kept-0123456789abcdef"];
    std::fs::write(&tokens, format!("token gone read {gone}\ntoken kept read {kept}\n")).expect("written");
    std::fs::set_permissions(&tokens, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("set");
    let daemon = Daemon::start(&sandbox, &format!("--http {port} --http-token-file @tokens"));
    let [of_gone, of_kept] =
        [gone, kept].map(|token| Stream::open(&Web::tcp(port, Some(token)), "/api/v1/events"));
    assert!(of_gone.next().is_some() && of_kept.next().is_some());
    std::fs::write(&tokens, format!("token kept read {kept}\n")).expect("written");
    // It ends at the next event; each pool has one every second.
    let is_ended = (0..20).any(|_| of_gone.next().is_none());
    assert!(is_ended, "the stream of a withdrawn token goes on");
    let rates = |event: &Value| event["kind"] == "rates";
    (0..2).for_each(|_| drop(of_kept.until("rates", rates)));
    daemon.end();
}

#[test]
fn a_job_is_streamed_until_it_is_done() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("volume create tank/a --layout raid1 --size 16MiB");
    sandbox.write("tank/a", 0, &unique_bytes(16 << 20, 1));
    sandbox.ok("pool set tank patrol-rate=1MiB");
    let daemon = Daemon::start(&sandbox, "");
    let web = Web::own(&sandbox);
    for (path, status) in [("other/jobs/scrub", 404), ("tank/jobs/dance", 400)] {
        let (found, answer) = web.ask("GET", &format!("/api/v1/pools/{path}/events"), Value::Null);
        assert_eq!(found, status, "{path}: {answer}");
    }
    // The stream of a job that is not running says that it is done.
    let rebuild = Stream::open(&web, "/api/v1/pools/tank/jobs/rebuild/events");
    assert_eq!(rebuild.next().expect("an event")["kind"], "done");
    assert_eq!(rebuild.next(), None);

    web.ok("POST", "/api/v1/pools/tank/scrub", Value::Null);
    let scrub = Stream::open(&web, "/api/v1/pools/tank/jobs/scrub/events");
    let first = scrub.next().expect("how far it is");
    assert_eq!((&first["kind"], &first["job"]["kind"]), (&json!("progress"), &json!("scrub")), "{first}");
    assert!(first["job"]["percent"].is_number() && first["job"]["volume"] == "a", "{first}");
    web.ok("PATCH", "/api/v1/pools/tank", json!({"patrol_rate": "none"}));
    let done = scrub.until("the scrub is done", |event| event["kind"] == "done");
    assert_eq!((&done["pool"], &done["job"]), (&json!("tank"), &json!("scrub")), "{done}");
    assert!(done["last_scrub"]["checked_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{done}");
    assert_eq!(scrub.next(), None, "its stream has ended");
    daemon.end();
}

#[test]
fn streams_are_limited_and_a_leaver_frees_a_slot() {
    let sandbox = Sandbox::new();
    sandbox.pool(1);
    let daemon = Daemon::start(&sandbox, "");
    let web = Web::own(&sandbox);
    let follow = || {
        let mut stream = BufReader::new(web.send("GET", "/api/v1/events", &[], b""));
        let mut head = String::new();
        stream.read_line(&mut head).expect("an answer");
        (stream, head)
    };
    let mut all: Vec<_> = (0..MAX_STREAMS).map(|_| follow()).collect();
    assert!(all.iter().all(|(_, head)| head.starts_with("HTTP/1.1 200")));
    let (mut refused, head) = follow();
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut refused, &mut text).expect("the rest");
    assert!(text.contains("too many streams are open"), "{text}");
    all.pop();
    until("a place is free", || follow().1.starts_with("HTTP/1.1 200"));
    // Other requests are answered beside them, and they hold up no end.
    web.ok("GET", "/api/v1/pools", Value::Null);
    daemon.end();
}
