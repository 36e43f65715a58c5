//! Snapshots sent and received through the command line and HTTP, with and without a daemon:
//! whole, incremental, cut short, into a volume in use.

use std::io::Write;
use std::process::Stdio;

use serde_json::json;

use crate::kit::daemon::{Daemon, until};
use crate::kit::web::Web;
use crate::kit::{Answer, Sandbox, unique_bytes};
use crate::nbd_client::Client;

const LENGTH: usize = 1 << 20;
const RECEIVE: &str = "/api/v1/pools/tank/volumes/copy/receive";

/// A pool with `log@one`, `log@two` and a whole and an incremental stream of them.
fn with_streams(sandbox: &Sandbox) -> [Vec<u8>; 2] {
    sandbox.pool(4);
    sandbox.ok("volume create tank/log --layout raid5 --size 4MiB --log");
    sandbox.write("tank/log", 4096, &unique_bytes(LENGTH, 1));
    sandbox.ok("snapshot create tank/log@one");
    sandbox.write("tank/log", 64 << 10, &unique_bytes(8192, 2));
    sandbox.ok("snapshot create tank/log@two");
    ["snapshot send tank/log@one", "snapshot send tank/log@two --from=@one"].map(|words| sent(sandbox, words))
}

fn sent(sandbox: &Sandbox, words: &str) -> Vec<u8> {
    let sent = sandbox.command(words).output().expect("run");
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    sent.stdout
}

/// A body that came in chunks.
fn without_chunks(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let line = bytes.iter().position(|byte| *byte == b'\n').expect("a line");
        let length = str::from_utf8(&bytes[..line]).expect("text").trim();
        let length = usize::from_str_radix(length, 16).expect("a length");
        if length == 0 {
            return body;
        }
        body.extend(&bytes[line + 1..line + 1 + length]);
        bytes = &bytes[line + 3 + length..];
    }
}

fn receive(sandbox: &Sandbox, words: &str, stream: &[u8]) -> Answer {
    sandbox.run_with_input(&format!("snapshot receive {words}"), stream)
}

fn is_same(sandbox: &Sandbox, one: &str, other: &str) -> bool {
    let all = |name: &str| sandbox.read(name, 0, 4 << 20);
    all(one) == all(other)
}

#[test]
fn streams_pass_from_volume_to_volume() {
    let sandbox = Sandbox::new();
    let [whole, changed] = with_streams(&sandbox);
    assert!(changed.len() < 10_000 && whole.len() > LENGTH, "{} of {}", changed.len(), whole.len());
    let received = receive(&sandbox, "tank/copy", &whole).expect_code(0);
    assert!(
        received.text().contains("snapshot tank/copy@one received: 1 MiB of data"),
        "{}",
        received.text()
    );
    let again = receive(&sandbox, "tank/copy --json", &changed).expect_code(0).json();
    assert_eq!((&again["data_bytes"], &again["was_resumed"]), (&json!(8192), &json!(false)));
    assert_eq!(again["snapshot"]["name"], "two");
    for (one, other) in [("log@one", "copy@one"), ("log@two", "copy@two"), ("log@two", "copy")] {
        assert!(is_same(&sandbox, &format!("tank/{one}"), &format!("tank/{other}")), "{one} {other}");
    }
    receive(&sandbox, "tank/other --layout raid6 --reserve 20", &whole).expect_code(0);
    let other = &sandbox.json("volume show tank/other")["volumes"][0];
    assert_eq!((&other["layout"], &other["log"]["reserve_percent"]), (&json!("raid6"), &json!(20)));
    assert!(is_same(&sandbox, "tank/log@one", "tank/other"));
    let events = sandbox.ok("pool events tank");
    assert!(events.text().contains("snapshot copy@two was received from tank/log"), "{}", events.text());

    // A script repeats what it has no answer to.
    receive(&sandbox, "tank/copy", &changed).expect_code(0);
    for (words, stream, reason) in [
        ("tank/copy", &whole, "already has a volume copy"),
        ("tank/none", &changed, "has no volume none"),
        ("tank/log", &changed, "did not receive last"),
        ("tank/new", &b"PGDMP and more of it".to_vec(), "not a stream of a snapshot"),
        ("tank/new", &Vec::new(), "cut short"),
        ("tank/other --layout raid5", &changed, "has already"),
    ] {
        let refused = receive(&sandbox, words, stream);
        assert_eq!(refused.code, 1, "{words}: {}", refused.err);
        assert!(refused.err.contains(reason) && refused.err.contains("hint:"), "{}", refused.err);
    }
    for words in ["snapshot send tank/log@one --from two", "snapshot send tank/log@one --from none"] {
        assert!(sandbox.fails(words).contains("hint:"), "{words}");
    }
    sandbox.run("snapshot send tank/log@one --json").expect_code(2);
    sandbox.run("snapshot send tank/log@one --from a@b").expect_code(2);
    sandbox.run("snapshot receive tank/new --columns 4").expect_code(2);
}

#[test]
fn an_interrupted_receive_is_told_and_continued() {
    let sandbox = Sandbox::new();
    let [whole, changed] = with_streams(&sandbox);
    let cut = receive(&sandbox, "tank/copy", &whole[..whole.len() - 1]);
    assert!(cut.err.contains("cut short") && cut.err.contains("hint: send it again"), "{}", cut.err);
    let shown = &sandbox.json("volume show tank/copy")["volumes"][0]["receiving"];
    assert_eq!(*shown, json!({"snapshot": "one", "base": null, "is_running": false}));
    let status = sandbox.ok("pool status tank").one_line();
    assert!(status.contains("volume copy is not served"), "{status}");
    let shown = sandbox.ok("volume show tank/copy").one_line();
    assert!(shown.contains("snapshot one, interrupted; not served"), "{shown}");
    let refused = sandbox.fails("volume read tank/copy");
    assert!(refused.contains("holds a part of snapshot one"), "{refused}");
    let continued = receive(&sandbox, "tank/copy --json", &whole).expect_code(0).json();
    assert_eq!(continued["was_resumed"], json!(true));
    assert!(continued["present_bytes"].as_u64().expect("a number") > 0, "{continued}");
    assert!(is_same(&sandbox, "tank/log@one", "tank/copy"));

    let receiving = || sandbox.json("volume show tank/copy")["volumes"][0]["receiving"].clone();
    // A receiver that waits for the last byte.
    let begin = || {
        let mut child = sandbox.command("snapshot receive tank/copy");
        child.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = child.spawn().expect("run");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(&changed[..changed.len() - 1]).expect("written");
        until("it is receiving", || receiving()["is_running"] == json!(true));
        (child, input)
    };
    let daemon = Daemon::start(&sandbox, "tank --nbd unix:nbd.sock");
    let (mut child, input) = begin();
    child.kill().expect("killed");
    child.wait().expect("ended");
    until("it is interrupted", || receiving()["is_running"] == json!(false));
    drop(input);
    let (mut child, input) = begin();
    daemon.kill();
    // It notices when it has read more, or the end.
    drop(input);
    child.wait().expect("ended");
    let shown = &sandbox.json("volume show tank/copy")["volumes"][0]["receiving"];
    assert_eq!(*shown, json!({"snapshot": "two", "base": "one", "is_running": false}));
    assert!(is_same(&sandbox, "tank/log@one", "tank/copy@one"), "the base is served");
    sandbox.ok("snapshot rollback tank/copy@one");
    assert!(is_same(&sandbox, "tank/log@one", "tank/copy"));
    receive(&sandbox, "tank/copy", &changed).expect_code(0);
    assert!(is_same(&sandbox, "tank/log@two", "tank/copy"));
}

#[test]
fn streams_go_through_a_daemon() {
    let sandbox = Sandbox::new();
    let [whole, changed] = with_streams(&sandbox);
    let daemon = Daemon::start(&sandbox, "tank --nbd unix:nbd.sock --http unix:http.sock");
    assert!(sent(&sandbox, "snapshot send tank/log@one") == whole);
    receive(&sandbox, "tank/copy", &whole).expect_code(0);
    let client = Client::ready(&sandbox.path("nbd.sock"), "tank/copy");
    let refused = receive(&sandbox, "tank/copy", &changed);
    assert!(refused.err.contains("a client has tank/copy open"), "{}", refused.err);
    drop(client);
    let cut = changed.len() - 40;
    until("the client has left", || {
        receive(&sandbox, "tank/copy", &changed[..cut]).err.contains("cut short")
    });
    // In part it is no export.
    assert!(Client::try_ready(&sandbox.path("nbd.sock"), "tank/copy").is_err());
    let web = Web::unix(sandbox.path("http.sock"));
    let stream = "/api/v1/pools/tank/volumes/log/snapshots/two/stream?from=one";
    let (status, bytes) = web.ask_raw("GET", stream, &[], &[]);
    assert!(status == 200 && without_chunks(&bytes) == changed, "{status}");
    let (status, _) = web.ask_raw("POST", RECEIVE, &[], &changed[..cut]);
    assert_eq!(status, 409);
    let (status, bytes) = web.ask_raw("POST", RECEIVE, &[], &changed);
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&bytes));
    let document: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
    assert_eq!((&document["snapshot"]["name"], &document["was_resumed"]), (&json!("two"), &json!(true)));
    assert!(is_same(&sandbox, "tank/log@two", "tank/copy"));
    let missing = "/api/v1/pools/tank/volumes/log/snapshots/none/stream";
    assert_eq!(web.ask_raw("GET", missing, &[], &[]).0, 409);
    daemon.end();
}
