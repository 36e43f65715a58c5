//! The web console: its doors over HTTP, and its pages in Chromium (`tests/web`). Without Chromium,
//! node or the packages that `scripts/web-tools.sh` fetches, the pages are passed over.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use stripewise_control::size::{ByteSize, duration_text};

use crate::kit::Sandbox;
use crate::kit::daemon::Daemon;
use crate::kit::programs::{are_here, is_possible};
use crate::kit::web::{Web, free_port};

const ADMIN: &str = "admin-0123456789abcdef";
const READER: &str = "reader-0123456789abcdef";

/// A daemon with a token of each of two roles, at a port.
fn daemon(sandbox: &Sandbox) -> (Daemon, u16) {
    daemon_with(sandbox, "")
}

/// As [`daemon`], with more options.
fn daemon_with(sandbox: &Sandbox, options: &str) -> (Daemon, u16) {
    let tokens = sandbox.path("tokens");
    std::fs::write(&tokens, format!("token boss admin {ADMIN}\ntoken eyes read {READER}\n"))
        .expect("written");
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).expect("set");
    let port = free_port();
    (Daemon::start(sandbox, &format!("--http {port} --http-token-file @tokens {options}")), port)
}

/// An answer: its status, its head in small letters, and its document.
fn answer(web: &Web, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, String, Value) {
    let answer = web.answer(method, path, headers, body.as_bytes());
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let status = head[9..12].parse().expect("a status");
    (status, head, serde_json::from_slice(&answer[end + 4..]).unwrap_or(Value::Null))
}

fn cookie_in(head: &str) -> &str {
    let line = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    line.split(';').next().expect("a value")
}

#[test]
fn sessions_need_the_csrf_token_for_changes() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    let (daemon, port) = daemon(&sandbox);
    let web = Web::tcp(port, None);
    let host = format!("127.0.0.1:{port}");
    let login = |token: &str, more: &[(&str, &str)]| {
        let headers = [&[("Host", host.as_str())], more].concat();
        answer(&web, "POST", "/console/login", &headers, &json!({ "token": token }).to_string())
    };
    assert_eq!(login("wrong-0123456789abcdef", &[]).0, 401);
    assert_eq!(login(ADMIN, &[("Origin", "http://evil.example")]).0, 403);
    let (status, head, facts) = login(ADMIN, &[]);
    assert_eq!((status, &facts["role"], &facts["name"]), (200, &json!("admin"), &json!("boss")), "{facts}");
    assert!(head.contains("httponly") && head.contains("samesite=strict"), "{head}");
    let (cookie, csrf) = (cookie_in(&head), facts["csrf"].as_str().expect("a token"));

    let ask = |method: &str, path: &str, more: &[(&str, &str)]| {
        let headers = [&[("Host", host.as_str()), ("Cookie", cookie)], more].concat();
        answer(&web, method, path, &headers, "")
    };
    assert_eq!(ask("GET", "/api/v1/pools", &[]).2["pools"][0]["name"], "tank");
    let clear = "/api/v1/pools/tank/clear";
    let (status, _, problem) = ask("POST", clear, &[]);
    assert_eq!(status, 403, "{problem}");
    assert_eq!(ask("POST", clear, &[("X-CSRF-Token", &csrf[1..])]).0, 403);
    assert_eq!(ask("POST", clear, &[("X-CSRF-Token", csrf), ("Origin", "http://evil.example")]).0, 403);
    assert_eq!(ask("POST", clear, &[("X-CSRF-Token", csrf)]).0, 200);
    assert_eq!(ask("GET", "/console/session", &[]).2["csrf"], csrf);
    assert_eq!(ask("POST", "/console/logout", &[]).0, 403);
    assert_eq!(ask("POST", "/console/logout", &[("X-CSRF-Token", csrf)]).0, 200);
    assert_eq!(ask("GET", "/api/v1/pools", &[]).0, 401, "the session has ended");

    let (_, head, _) = login(READER, &[]);
    let headers = [("Host", host.as_str()), ("Cookie", cookie_in(&head))];
    assert_eq!(answer(&web, "GET", "/api/v1/pools", &headers, "").0, 200);
    assert_eq!(answer(&web, "GET", "/console/places?folder=/", &headers, "").0, 403);
    let tokens = format!("token eyes read {READER}x\n");
    std::fs::write(sandbox.path("tokens"), tokens).expect("written");
    assert_eq!(answer(&web, "GET", "/api/v1/pools", &headers, "").0, 401, "its token was replaced");
    daemon.end();
}

#[test]
fn pages_have_a_strict_policy_and_are_kept() {
    let sandbox = Sandbox::new();
    let (daemon, port) = daemon(&sandbox);
    let web = Web::tcp(port, None);
    let (status, head, _) = answer(&web, "GET", "/", &[], "");
    assert_eq!(status, 200, "{head}");
    let policy = head.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).expect("one");
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{policy}");
    assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"), "{policy}");
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).expect("a tag").to_owned();
    assert_eq!(answer(&web, "GET", "/", &[("If-None-Match", &tag)], "").0, 304);
    let assets = format!("/console/assets/{}", tag.trim_matches('"'));
    let (status, head, _) = answer(&web, "GET", &format!("{assets}/main.js"), &[], "");
    assert_eq!(status, 200);
    assert!(head.contains("immutable") && head.contains("content-encoding: gzip"), "{head}");
    assert_eq!(answer(&web, "GET", &format!("{assets}/../../x"), &[], "").0, 404);
    assert_eq!(answer(&web, "GET", "/console/assets/0123/main.js", &[], "").0, 404);
    assert_eq!(answer(&web, "GET", "/console/session", &[], "").0, 401);
    daemon.end();
}

#[test]
fn tools_answer_beside_the_daemon() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    sandbox.ok("volume create tank/a --layout raid5 --size 8MiB");
    let (daemon, _) = daemon(&sandbox);
    let web = Web::own(&sandbox);
    let advice = web.ok("POST", "/console/tools/pool-advise", json!({"words": ["tank"]}));
    assert!(!advice["volumes"][0]["rebuild"]["by_priority"].as_array().expect("some").is_empty(), "{advice}");
    let catalogue = web.ok("POST", "/console/tools/model-catalogue", json!({}));
    assert!(!catalogue["drives"].as_array().expect("drives").is_empty());
    let (status, problem) = web.ask("POST", "/console/tools/model-catalogue", json!({"words": ["nodrive"]}));
    assert_eq!(status, 409);
    assert!(problem["detail"].as_str().expect("why").contains("nodrive"), "{problem}");
    let report = json!({"options": {"report": "/x"}});
    assert_eq!(web.ask("POST", "/console/tools/advise", report).0, 400);
    daemon.end();
}

#[test]
fn rows_show_the_redundancy_that_is_left() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    sandbox.ok("volume create tank/a --layout raid5 --size 8MiB");
    let (daemon, _) = daemon(&sandbox);
    let web = Web::own(&sandbox);
    let left = || {
        let rows = web.ok("GET", "/console/pools/tank/rows", Value::Null);
        let runs = rows["runs"].as_array().expect("runs").clone();
        let columns = runs.iter().flat_map(|run| run["columns"].as_array().expect("columns"));
        let away = columns.filter(|column| column["state"] != "active").count();
        (runs.iter().map(|run| run["redundancy_left"].as_i64()).min().flatten(), runs.len(), away)
    };
    let (before, runs, away) = left();
    assert_eq!((before, away), (Some(1), 0));
    sandbox.ok("pool offline tank @d/drive0.img");
    assert_eq!(left(), (Some(0), runs, runs));
    assert_eq!(web.ask("GET", "/console/pools/other/rows", Value::Null).0, 404);
    let used = web.ok("GET", "/console/pools/tank/volumes/a/use", Value::Null);
    assert_eq!((&used["in_flight"], &used["nbd_clients"]), (&json!(0), &Value::Null), "{used}");
    assert_eq!(used["vhost_clients"], Value::Null, "{used}");
    let service = web.ok("GET", "/console/service", Value::Null);
    assert_eq!((&service["nbd"], &service["alerts"]), (&json!([]), &json!([])), "{service}");
    assert_eq!(service["vhost_user"], Value::Null, "{service}");
    assert!(web.ok("GET", "/console/pools/tank/hour", Value::Null)["points"].is_array());
    daemon.end();
}

#[test]
fn units_read_as_on_the_command_line() {
    if !are_here(&["node"]) {
        return;
    }
    let sizes = [0, 1, 1023, 1024, 1536, 123_456_789, 4_000_000_000_000, 1 << 40, (1 << 50) - 1, 1 << 52];
    let sizes = sizes.map(|bytes| json!(["size", bytes, ByteSize(bytes).to_string()]));
    let seconds = [0.0, 0.2, 59.0, 59.5, 60.0, 200.0, 3600.0, 39_900.0, 86_400.0, 187_200.0];
    let durations = seconds.map(|seconds| json!(["duration", seconds, duration_text(seconds)]));
    let chances = [0.0, 1e-10, 9e-5, 0.000_123, 0.0044, 0.12, 0.5];
    let chances = chances.map(|chance| {
        let text = stripewise_model::reliability::chance_per_year(chance);
        json!(["chance", chance, text.replace(" a year", "")])
    });
    let all: Vec<Value> = sizes.into_iter().chain(durations).chain(chances).collect();
    let output = Command::new("node")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/web/units.mjs"))
        .env("UNITS_TEST", Value::from(all).to_string())
        .output()
        .expect("node runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn types_of_the_pages_are_right() {
    let Some((_, tools)) = browser() else { return };
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/jsconfig.json");
    let output = Command::new(tools.join("node_modules/.bin/tsc")).arg("-p").arg(project).output();
    let output = output.expect("tsc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Chromium, and the folder with the packages for tests; `None` if something is missing.
fn browser() -> Option<(PathBuf, PathBuf)> {
    if !are_here(&["node", "chromium"]) {
        return None;
    }
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?.join("web-tools");
    if !tools.join("versions").exists() {
        eprintln!("passed over: this test needs scripts/web-tools.sh");
        return None;
    }
    Some((PathBuf::from("/usr/bin/chromium"), tools))
}

/// Runs a test of `tests/web` against a daemon with drives d/drive0.img …, and what `prepare`
/// makes.
fn in_browser(test: &str, drives: usize, prepare: impl FnOnce(&Sandbox)) {
    in_browser_with(test, drives, "", prepare);
}

/// As [`in_browser`], with options of the daemon.
fn in_browser_with(test: &str, drives: usize, options: &str, prepare: impl FnOnce(&Sandbox)) {
    let Some((chromium, tools)) = browser() else { return };
    let sandbox = Sandbox::new();
    sandbox.ok(&format!("drive make @d --count {drives} --size 64MiB"));
    prepare(&sandbox);
    let (daemon, port) = daemon_with(&sandbox, options);
    let given = json!({
        "url": format!("http://127.0.0.1:{port}"), "token": ADMIN, "reader": READER, "tools": tools,
        "chromium": chromium, "folder": sandbox.path(""), "drives": sandbox.path("d"),
        "program": env!("CARGO_BIN_EXE_stripewise"),
        // On a busy host the browser waits for a processor.
        "slack": "3000",
        "daemon": daemon.id().to_string(), "port": port.to_string(), "tokens": sandbox.path("tokens"),
    });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/web").join(test);
    let output = Command::new("node")
        .arg(script)
        .env("CONSOLE_TEST", given.to_string())
        .env("STRIPEWISE_HOME", sandbox.path("home"))
        .output()
        .expect("node runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\ndaemon:\n{}", daemon.said());
    // A test may have ended it.
    daemon.end_anyhow();
}

/// True in `make soak`. Prints a message if not.
fn is_soak() -> bool {
    let is_soak = std::env::var_os("SOAK_SECONDS").is_some();
    if !is_soak {
        eprintln!("passed over: `make soak` runs this test");
    }
    is_soak
}

/// A pool `tank` with a volume on the first three drives.
fn with_pool(sandbox: &Sandbox) {
    sandbox.ok("pool create tank @d/drive0.img @d/drive1.img @d/drive2.img");
    sandbox.ok("volume create tank/a --layout raid5 --size 32MiB");
    sandbox.write("tank/a", 0, &[7; 8 << 20]);
}

#[test]
fn a_pool_is_created_with_advice_in_a_browser() {
    in_browser("create.mjs", 5, |_| {});
}

#[test]
fn a_lost_drive_is_seen_and_replaced_in_a_browser() {
    in_browser("replace.mjs", 5, with_pool);
}

#[test]
fn roles_and_destruction_hold_in_a_browser() {
    if is_soak() {
        in_browser("rights.mjs", 3, |sandbox| {
            let named = |name: &str| sandbox.path(&format!("d/{name}"));
            let markup = "<img src=x onerror=alert(1)>";
            // As long as a pool records paths.
            let long = "名".repeat((200 - named("").as_os_str().len()) / 3);
            std::fs::rename(named("drive1.img"), named(&long)).expect("renamed");
            std::fs::rename(named("drive2.img"), named(markup)).expect("renamed");
            let drives = [named("drive0.img"), named(&long), named(markup)];
            let status = sandbox.command("pool create tank").args(drives).status();
            assert!(status.expect("it runs").success());
        });
    }
}

#[test]
fn a_stopped_daemon_is_seen_in_a_browser() {
    if is_soak() {
        in_browser("away.mjs", 3, with_pool);
    }
}

#[test]
fn pages_are_accessible_in_both_themes() {
    if is_soak() {
        in_browser("people.mjs", 5, with_pool);
    }
}

#[test]
fn a_run_of_the_laboratory_is_watched_in_a_browser() {
    if is_soak() {
        in_browser("lab.mjs", 1, |_| {});
    }
}

#[test]
fn exports_mounts_and_alerts_work_in_a_browser() {
    if is_soak() && is_possible(&["qemu-io"]) {
        in_browser_with("access.mjs", 3, "--nbd unix:nbd.sock --alert-command true", with_pool);
    }
}

#[test]
fn every_action_of_the_pages_takes_effect() {
    if is_soak() {
        in_browser("actions.mjs", 5, with_pool);
    }
}
