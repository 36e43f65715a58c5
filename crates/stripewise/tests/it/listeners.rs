//! Listeners of a daemon: NBD, with third-party clients, and HTTP.

use crate::kit;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::kit::daemon::{Daemon, until};
use crate::kit::web::{Web, free_port};
use crate::kit::{Sandbox, unique_bytes};
use serde_json::{Value, json};

/// True if a program is installed. Prints a message if not, since the test then covers less.
fn is_here(program: &str) -> bool {
    let here = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if here.is_err() {
        println!("skipped: {program} is not installed");
    }
    here.is_ok()
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}{text}");
    text
}

#[test]
fn volumes_are_exported_over_nbd() {
    if !is_here("nbdinfo") || !is_here("nbdcopy") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid5 --size 24MiB");
    let daemon = Daemon::start(&sandbox, "--nbd unix:nbd.sock --nbd tcp:0 --http unix:http.sock");
    let socket = sandbox.text("nbd.sock");
    let uri = |volume: &str| format!("nbd+unix:///{volume}?socket={socket}");
    let list: Value =
        serde_json::from_str(&run(Command::new("nbdinfo").args(["--list", "--json", &uri("")])))
            .expect("JSON");
    let exports = list["exports"].as_array().expect("exports");
    assert_eq!(exports.len(), 1);
    assert_eq!(
        (&exports[0]["export-name"], &exports[0]["export-size"]),
        (&json!("tank/a"), &json!(24 << 20))
    );

    let data = unique_bytes(24 << 20, 1);
    std::fs::write(sandbox.path("in.bin"), &data).expect("written");
    run(Command::new("nbdcopy").args(["--flush", &sandbox.text("in.bin"), &uri("tank/a")]));
    assert!(sandbox.read("tank/a", 0, data.len()) == data, "the command line sees what came over NBD");
    // Volumes are created and deleted while the daemon runs; a volume in use cannot be deleted.
    sandbox.ok("volume create tank/b --layout raid10 --size 8MiB");
    assert_eq!(run(Command::new("nbdinfo").args(["--size", &uri("tank/b")])).trim(), (8 << 20).to_string());
    let mut client = Command::new("nbdkit");
    if is_here("nbdkit") {
        let pid = sandbox.text("nbdkit.pid");
        let (through, of_us) = (sandbox.text("through.sock"), uri("tank/b"));
        client.args(["--exit-with-parent", "-f", "-P", &pid, "-U", &through, "nbd", &of_us, "shared=true"]);
        let mut client = client.spawn().expect("started");
        until("it is connected", || std::fs::metadata(&pid).is_ok());
        let refused = sandbox.fails("volume delete tank/b --yes");
        assert!(refused.contains("a client has tank/b open"), "{refused}");
        let refused = sandbox.run_with_input("volume write tank/b", b"under it").expect_code(1).err;
        assert!(refused.contains("a client has tank/b open"), "{refused}");
        assert!(sandbox.fails("pool destroy tank --yes").contains("a client has tank/b open"));
        client.kill().expect("killed");
        client.wait().expect("ended");
    }
    until("no client is connected", || sandbox.run("volume delete tank/b --yes").code == 0);
    let gone = Command::new("nbdinfo").args(["--size", &uri("tank/b")]).output().expect("run");
    assert!(!gone.status.success());

    // Killing the daemon loses no durable data.
    daemon.kill();
    let daemon = Daemon::start(&sandbox, "--nbd unix:nbd.sock --cores 3");
    run(Command::new("nbdcopy").args([&uri("tank/a"), &sandbox.text("out.bin")]));
    assert!(std::fs::read(sandbox.path("out.bin")).expect("there") == data);
    daemon.end();
    assert!(!sandbox.path("nbd.sock").exists());
    let said = sandbox.run("serve --nbd udp:7").expect_code(2).err;
    assert!(said.contains("is not a listen address"), "{said}");
    sandbox.run("serve --cores 9").expect_code(2);
    let said = sandbox.run("serve --nbd unix:a.sock --nbd-volumes unix:b.sock=tank/*").expect_code(2).err;
    assert!(said.contains("--nbd has no such address"), "{said}");
}

#[test]
fn volumes_below_another_pool_are_not_exported() {
    if !is_here("nbdinfo") {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 4 --size 128MiB");
    sandbox.ok("pool create below @d/drive0.img @d/drive1.img @d/drive2.img");
    sandbox.ok("volume create below/x --layout raid5 --size 64MiB");
    sandbox.ok("volume create below/free --layout raid5 --size 16MiB");
    sandbox.ok("pool create above below/x @d/drive3.img");
    sandbox.ok("volume create above/a --layout raid1 --size 16MiB");
    let daemon = Daemon::start(&sandbox, "--nbd unix:nbd.sock");
    let uri = format!("nbd+unix://?socket={}", sandbox.text("nbd.sock"));
    let list: Value =
        serde_json::from_str(&run(Command::new("nbdinfo").args(["--list", "--json", &uri]))).expect("JSON");
    let mut names: Vec<&str> = list["exports"]
        .as_array()
        .expect("exports")
        .iter()
        .filter_map(|e| e["export-name"].as_str())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["above/a", "below/free"]);
    daemon.end();
}

#[test]
fn http_does_what_the_command_line_does() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 6 --size 32MiB");
    let web = Web::own(&sandbox);
    let daemon = Daemon::start(&sandbox, "");
    let drives: Vec<String> = (0..4).map(|index| sandbox.text(&format!("d/drive{index}.img"))).collect();
    let made = web.ok("POST", "/api/v1/pools", json!({"name": "tank", "drives": drives}));
    assert_eq!((&made["output_version"], &made["pools"][0]["name"]), (&json!(1), &json!("tank")));
    let volume = json!({"name": "a", "layout": "raid5", "size_bytes": 16 << 20});
    assert_eq!(web.ok("POST", "/api/v1/pools/tank/volumes", volume)["volumes"][0]["layout"], "raid5");

    let bytes = "/api/v1/pools/tank/volumes/a/bytes";
    let data = unique_bytes(3 << 20, 1);
    let (status, _) = web.ask_raw("PUT", &format!("{bytes}?offset=70000"), &[], &data);
    assert_eq!(status, 200);
    let (status, read) = web.ask_raw("GET", &format!("{bytes}?offset=70000&length={}", data.len()), &[], &[]);
    assert!(status == 200 && read == data);
    assert!(sandbox.read("tank/a", 70_000, data.len()) == data);

    // Drives, settings, jobs and changes to a volume.
    let spare = sandbox.text("d/drive4.img");
    web.ok("POST", "/api/v1/pools/tank/drives", json!({"drives": [spare], "role": "spare"}));
    web.ok("PATCH", "/api/v1/pools/tank", json!({"rebuild_priority": "high", "space_warning": 90}));
    let pool = web.ok("GET", "/api/v1/pools/tank", Value::Null)["pools"][0].clone();
    assert_eq!((&pool["rebuild_priority_percent"], &pool["space_warning_percent"]), (&json!(60), &json!(90)));
    let drive = pool["drives"][1]["id"].as_str().expect("an identity").to_owned();
    web.ok("POST", &format!("/api/v1/pools/tank/drives/{drive}/offline"), Value::Null);
    assert_eq!(web.ok("GET", "/api/v1/pools", Value::Null)["pools"][0]["state"], "degraded");
    let with = sandbox.text("d/drive5.img");
    web.ok("POST", &format!("/api/v1/pools/tank/drives/{drive}/replace"), json!({"with": with}));
    until("the daemon rebuilds by itself", || {
        web.ok("GET", "/api/v1/pools/tank", Value::Null)["pools"][0]["state"] == "online"
    });
    web.ok("PATCH", "/api/v1/pools/tank/volumes/a", json!({"size_bytes": 20 << 20}));
    web.ok("PATCH", "/api/v1/pools/tank/volumes/a", json!({"convert": {"layout": "raid6"}}));
    until("it is converted", || {
        let volume = web.ok("GET", "/api/v1/pools/tank/volumes/a", Value::Null)["volumes"][0].clone();
        volume["layout"] == "raid6" && volume["state"] == "online"
    });
    web.ok("POST", "/api/v1/pools/tank/scrub", Value::Null);
    assert!(
        web.ok("GET", "/api/v1/pools/tank/events", Value::Null)["events"].as_array().expect("events").len()
            > 5
    );
    let load = web.ok("GET", "/api/v1/pools/tank/iostat", Value::Null);
    assert!(load["running"] == true && load["intervals"][0]["drives"][0]["written_bytes"].as_u64() > Some(0));

    // Errors: the text of the command line, with a matching status code.
    let (status, answer) = web.ask("GET", "/api/v1/pools/none", Value::Null);
    assert!(status == 404 && answer["detail"].as_str().expect("text").contains("no pool `none`"), "{answer}");
    assert_eq!((&answer["status"], &answer["title"]), (&json!(404), &json!("Not Found")));
    let (status, answer) =
        web.ask("POST", "/api/v1/pools/tank/volumes", json!({"name": "b", "layout": "raid9"}));
    assert!(status == 400 && answer["detail"].as_str().expect("text").contains("raid9"), "{answer}");
    let (status, answer) = web.ask("DELETE", "/api/v1/pools/tank/volumes/a", Value::Null);
    assert!(status == 400 && answer["hint"].is_string(), "{answer}");
    for (path, body) in [
        ("/api/v1/pools/tank/volumes", json!({"name": "b"})),
        ("/api/v1/pools/tank/volumes", json!({"name": "b", "layout": "raid1", "unknown": 1})),
        ("/api/v1/pools/tank/volumes", json!([1, 2, 3])),
    ] {
        assert_eq!(web.ask("POST", path, body.clone()).0, 422, "{body}");
    }
    assert_eq!(web.ask_raw("POST", "/api/v1/pools", &[("Content-Type", "application/json")], b"{").0, 400);
    assert_eq!(web.ask("GET", "/api/v2/pools", Value::Null).0, 404);
    // A name is never parsed as an option.
    let (status, answer) = web.ask("POST", "/api/v1/pools", json!({"name": "--force", "drives": ["--help"]}));
    assert!(status == 400 && answer["detail"].is_string(), "{answer}");
    assert_eq!(web.ask_raw("GET", &format!("{bytes}?offset=0&length=99999999999"), &[], &[]).0, 400);
    assert_eq!(web.ask_raw("PUT", bytes, &[], &vec![0; (16 << 20) + 1]).0, 413);

    // Requests from pages of other sites are refused with every method.
    for (method, path) in
        [("GET", "/api/v1/pools"), ("POST", "/api/v1/pools/tank/scrub"), ("GET", "/metrics")]
    {
        for page in [("Origin", "http://evil.example"), ("Sec-Fetch-Site", "cross-site"), ("Origin", "null")]
        {
            assert_eq!(web.ask_raw(method, path, &[page], b"").0, 403, "{method} {path} {page:?}");
        }
    }

    let (status, figures) = web.ask_raw("GET", "/metrics", &[], b"");
    let figures = String::from_utf8(figures).expect("text");
    assert_eq!(status, 200);
    assert!(figures.contains("stripewise_pool_state{pool=\"tank\",state=\"online\"} 1\n"), "{figures}");
    for line in figures.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        assert!(name.starts_with("stripewise_") && value.parse::<f64>().is_ok(), "{line}");
    }
    let description = web.ok("GET", "/api/v1/openapi.json", Value::Null);
    let paths = description["paths"].as_object().expect("paths");
    assert!(paths.len() >= 15 && paths.contains_key("/api/v1/pools/{pool}/volumes/{volume}"), "{paths:?}");

    web.ok("DELETE", "/api/v1/pools/tank/volumes/a?yes=true", Value::Null);
    web.ok("DELETE", "/api/v1/pools/tank?yes=true", Value::Null);
    assert_eq!(web.ok("GET", "/api/v1/pools", Value::Null)["pools"], json!([]));
    daemon.end();
}

/// The token that a daemon generated at its first start.
fn first_token(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("made");
    text.split_whitespace().last().expect("a secret").to_owned()
}

#[test]
fn http_over_tcp_needs_a_token_even_on_loopback() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    let port = free_port();
    let daemon = Daemon::start(&sandbox, &format!("--http {port}"));
    let asked = |token: Option<&str>| Web::tcp(port, token).ask("GET", "/api/v1/pools", Value::Null).0;
    assert_eq!(asked(None), 401);
    let tokens = sandbox.path("home/http.tokens");
    assert_eq!(std::fs::metadata(&tokens).expect("made").permissions().mode() & 0o777, 0o600);
    let token = first_token(&tokens);
    assert_eq!(asked(Some(&token)), 200);
    let mut wrong = token.clone();
    wrong.pop();
    assert_eq!(asked(Some(&wrong)), 401);
    // Pages of other sites are refused even with the token.
    let page = [("Origin", "http://evil.example")];
    assert_eq!(Web::tcp(port, Some(&token)).ask_raw("GET", "/api/v1/pools", &page, b"").0, 403);
    daemon.end();
    // The token stays the same after a restart.
    let daemon = Daemon::start(&sandbox, &format!("--http {port}"));
    assert_eq!(asked(Some(&token)), 200);
    let taken = Command::new(env!("CARGO_BIN_EXE_stripewise"))
        .args(["serve", "--http", &port.to_string()])
        .env("STRIPEWISE_HOME", sandbox.path("another"))
        .output()
        .expect("run");
    let says = String::from_utf8_lossy(&taken.stderr);
    assert!(taken.status.code() == Some(1) && says.contains("cannot listen for HTTP"), "{says}");
    daemon.end();
}

fn write_tokens(path: &Path, text: &str) {
    std::fs::write(path, text).expect("written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("set");
}

#[test]
fn tokens_have_roles_are_reread_and_are_audited() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("volume create tank/a --layout raid1 --size 8MiB");
    let (port, tokens) = (free_port(), sandbox.path("tokens"));
    let [eyes, hands, head] = ["eyes-0123456789abcdef", "hands-0123456789abcdef", "head-0123456789abcdef"];
    write_tokens(
        &tokens,
        &format!("token eyes read {eyes}\ntoken hands operate {hands}\ntoken head admin {head}\n"),
    );
    let daemon = Daemon::start(&sandbox, &format!("--http {port} --http-token-file @tokens"));
    let asked = |token: &str, method: &str, path: &str, body: Value| {
        Web::tcp(port, Some(token)).ask(method, path, body)
    };
    let bytes = "/api/v1/pools/tank/volumes/a/bytes";
    let read = format!("{bytes}?offset=0&length=512");
    let volume = json!({"name": "b", "layout": "raid1", "size_bytes": 1 << 20});
    let drive = json!({"drives": [sandbox.text("d/drive0.img")]});
    let forced = json!({"drives": [sandbox.text("d/drive0.img")], "force": true});
    for (method, path, body, least) in [
        ("GET", "/api/v1/pools", Value::Null, 0),
        ("GET", "/metrics", Value::Null, 0),
        ("GET", "/api/v1/openapi.json", Value::Null, 0),
        ("GET", read.as_str(), Value::Null, 1),
        ("POST", "/api/v1/drives/show", drive, 1),
        ("POST", "/api/v1/pools/tank/scrub", Value::Null, 1),
        ("POST", "/api/v1/pools/tank/volumes", volume, 1),
        ("POST", "/api/v1/pools/tank/drives", forced, 2),
        ("PUT", bytes, Value::Null, 2),
        ("DELETE", "/api/v1/pools/tank/volumes/b?yes=true", Value::Null, 2),
    ] {
        for (role, token) in [eyes, hands, head].into_iter().enumerate() {
            let (status, answer) = asked(token, method, path, body.clone());
            assert_eq!(status == 403, role < least, "{method} {path} by {token}: {status} {answer}");
        }
    }
    let (status, refused) = asked(eyes, "DELETE", "/api/v1/pools/tank/volumes/a?yes=true", Value::Null);
    assert!(status == 403 && refused["detail"].as_str().expect("text").contains("role admin"), "{refused}");
    assert_eq!(sandbox.json("volume list")["volumes"].as_array().expect("volumes").len(), 1);

    // One token is revoked and one added, without a restart.
    let new = "new-0123456789abcdef";
    write_tokens(&tokens, &format!("token eyes read {eyes}\ntoken new operate {new}\n"));
    assert_eq!(asked(head, "GET", "/api/v1/pools", Value::Null).0, 401);
    assert_eq!(asked(new, "POST", "/api/v1/pools/tank/scrub", Value::Null).0, 200);
    // Tokens in a file that other users can read are refused.
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o644)).expect("set");
    assert_eq!(asked(new, "GET", "/api/v1/pools", Value::Null).0, 401);

    // The audit log has the user, the request and its outcome.
    sandbox.ok("pool set tank space-warning=90");
    let said = daemon.end();
    let line = |parts: &[&str]| {
        assert!(said.lines().any(|line| parts.iter().all(|part| line.contains(part))), "{parts:?} in {said}");
    };
    line(&["command: ", "volume delete", "way=\"http\"", "who=\"token head from 127.0.0.1:", "exit_code=0"]);
    line(&["command: ", "pool scrub", "who=\"token new from 127.0.0.1:", "exit_code=0"]);
    line(&["command: ", "pool set tank", "way=\"socket\"", "who=\"uid ", "exit_code=0"]);
    line(&["token eyes from 127.0.0.1:", "was refused", "`DELETE /api/v1/pools/{pool}/volumes/{volume}`"]);
    let refused = sandbox.fails(&format!("serve --http {port} --http-token-file @tokens"));
    assert!(refused.contains("chmod 600") && refused.contains("hint: "), "{refused}");
    write_tokens(&tokens, "short\n");
    assert!(
        sandbox.fails(&format!("serve --http {port} --http-token-file @tokens")).contains("16 printable")
    );
}

#[test]
fn http_beyond_loopback_is_encrypted() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    let port = free_port();
    let refused = sandbox.run(&format!("serve --http 0.0.0.0:{port}")).expect_code(2);
    assert!(refused.err.contains("TLS is required") && refused.err.contains("hint: "), "{}", refused.err);
    if !is_here("openssl") || !is_here("curl") {
        return;
    }
    let make_certificate = |name: &str| {
        run(Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
            .args([
                "-days",
                "30",
                "-subj",
                "/CN=localhost",
                "-addext",
                "subjectAltName=DNS:localhost,IP:127.0.0.1",
                "-keyout",
                &sandbox.text("key.pem"),
                "-out",
                &sandbox.text(name),
            ]));
    };
    make_certificate("cert.pem");
    let words = format!("--http 0.0.0.0:{port} --http-tls-cert @cert.pem --http-tls-key @key.pem");
    let daemon = Daemon::start(&sandbox, &words);
    let token = first_token(&sandbox.path("home/http.tokens"));
    let asked = |authority: &str, token: &str| {
        let curl = Command::new("curl")
            .args(["--silent", "--show-error", "--cacert", &sandbox.text(authority)])
            .args(["-H", &format!("Authorization: Bearer {token}"), "-w", "%{http_code}"])
            .arg(format!("https://localhost:{port}/api/v1/pools"))
            .output();
        String::from_utf8_lossy(&curl.expect("run").stdout).into_owned()
    };
    assert!(asked("cert.pem", &token).ends_with("200"), "{}", daemon.said());
    assert!(asked("cert.pem", "0123456789abcdef").ends_with("401"));
    // Unencrypted requests get no answer.
    let mut clear = Web::tcp(port, Some(&token)).send("GET", "/api/v1/pools", &[], b"");
    let mut answer = Vec::new();
    let _ = clear.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&answer));
    // A new certificate takes effect without a restart.
    std::fs::copy(sandbox.path("cert.pem"), sandbox.path("old.pem")).expect("copied");
    make_certificate("cert.pem");
    assert!(asked("cert.pem", &token).ends_with("200"), "{}", daemon.said());
    assert!(!asked("old.pem", &token).ends_with("200"));
    daemon.end();
}

/// Another local user connects, and is identified by the socket's peer credentials.
#[test]
fn unix_socket_users_without_a_role_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    if sandbox.path("home").metadata().expect("there").uid() != 0 || !is_here("curl") {
        println!("skipped: only root can act as another user here");
        return;
    }
    // A directory that other users can access.
    let open = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(open.path(), std::fs::Permissions::from_mode(0o755)).expect("set");
    let socket = open.path().join("http.sock");
    let tokens = sandbox.path("home/http.tokens");
    let daemon = Daemon::start(&sandbox, &format!("--http unix:{}", socket.display()));
    let asked = |method: &str, path: &str| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "-o", "/dev/null", "-w", "%{http_code}", "-X", method, "--unix-socket"]);
        curl.arg(&socket).arg(format!("http://localhost{path}")).uid(65534).gid(65534).current_dir("/");
        String::from_utf8_lossy(&curl.output().expect("run").stdout).into_owned()
    };
    assert_eq!(asked("GET", "/api/v1/pools"), "401");
    assert_eq!(asked("DELETE", "/api/v1/pools/tank?yes=true"), "401");
    write_tokens(&tokens, "user 65534 read\n");
    assert_eq!(asked("GET", "/api/v1/pools"), "200");
    assert_eq!(asked("DELETE", "/api/v1/pools/tank?yes=true"), "403");
    assert_eq!(Web::unix(socket.clone()).ask("GET", "/api/v1/pools", Value::Null).0, 200, "the owner");
    daemon.end();
    assert!(!socket.exists());
}

#[test]
fn alerts_are_sent_on_trouble() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    sandbox.ok("volume create tank/a --layout raid5 --size 20MiB");
    let data = unique_bytes(12 << 20, 1);
    sandbox.write("tank/a", 0, &data);
    assert!(sandbox.fails("alert test").contains("no daemon is running"));
    let daemon = Daemon::start(&sandbox, "");
    assert!(sandbox.fails("alert test").contains("was given no way to send alerts"));
    daemon.end();

    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
    let (told, posts) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut request, mut part) = (Vec::new(), [0; 4096]);
            while !request.ends_with(b"}") {
                match stream.read(&mut part) {
                    Ok(read @ 1..) => request.extend(&part[..read]),
                    _ => break,
                }
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let text = String::from_utf8_lossy(&request).into_owned();
            let body = text.rsplit("\r\n\r\n").next().unwrap_or_default().to_owned();
            if told.send(serde_json::from_str::<Value>(&body).unwrap_or(Value::Null)).is_err() {
                return;
            }
        }
    });
    let said = sandbox.text("said");
    std::fs::write(
        sandbox.path("alert.sh"),
        format!("#!/bin/sh\necho \"$STRIPEWISE_KIND $STRIPEWISE_TEXT\" >> {said}\n"),
    )
    .expect("written");
    run(Command::new("chmod").args(["755", &sandbox.text("alert.sh")]));
    let words = format!("--alert-command @alert.sh --alert-webhook {url}");
    let daemon = Daemon::start(&sandbox, &words);
    let tested = sandbox.json("alert test");
    assert_eq!(tested["sent"].as_array().expect("ways").len(), 2, "{tested}");
    assert_eq!(posts.recv_timeout(kit::daemon::PATIENCE).expect("an alert")["kind"], "test");

    // Bit rot that a scrub finds, then a lost drive.
    kit::corrupt(&sandbox.path("d/drive2.img"), sandbox.place_of(2, &data[..400_000]), 1 << 14);
    sandbox.ok("pool scrub tank --wait");
    // The loss is detected without client I/O.
    std::fs::remove_file(sandbox.path("d/drive1.img")).expect("there");
    let mut kinds = Vec::new();
    // One check may detect both; the state is reported first.
    while !(kinds.contains(&"state".to_owned()) && kinds.contains(&"scrub".to_owned())) {
        let alert = posts.recv_timeout(kit::daemon::PATIENCE).expect("an alert");
        assert_eq!(alert["pool"], "tank");
        assert!(!alert["text"].as_str().expect("text").is_empty());
        kinds.push(alert["kind"].as_str().expect("text").to_owned());
    }
    until("the alert command ran as well", || {
        std::fs::read_to_string(&said).unwrap_or_default().contains("state degraded: ")
    });
    daemon.end();
}
