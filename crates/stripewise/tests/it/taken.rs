//! Places to listen, and drives, that another process has: the second process is told what, where
//! and by which process, and the first goes on as if it had not been asked.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use crate::kit::daemon::Daemon;
use crate::kit::{Sandbox, unique_bytes};

/// Runs the program as another user would, with a state folder of its own: how it ended and what
/// it said.
fn as_somebody_else(sandbox: &Sandbox, words: &str) -> (Option<i32>, String) {
    let output = sandbox.command(words).env("STRIPEWISE_HOME", sandbox.path("other")).output().expect("run");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("panicked"), "{said}");
    (output.status.code(), said)
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

#[test]
fn addresses_in_use_are_refused_with_a_hint() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("volume create tank/a --layout raid1 --size 8MiB");
    let (nbd, http) = (free_port(), free_port());
    let daemon = Daemon::start(&sandbox, &format!("--nbd unix:nbd.sock --nbd tcp:{nbd} --http {http}"));
    for place in ["--nbd unix:nbd.sock".to_owned(), format!("--nbd tcp:{nbd}"), format!("--http {http}")] {
        let (code, said) = as_somebody_else(&sandbox, &format!("serve {place}"));
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("error: cannot ") && said.contains("hint: `ss -lxtp`"), "{place}: {said}");
    }
    // What is no socket is left alone.
    std::fs::write(sandbox.path("diary"), "dear diary").expect("written");
    let (code, said) = as_somebody_else(&sandbox, "serve --nbd unix:diary");
    assert!(code == Some(1) && said.contains("not a socket") && said.contains("hint: "), "{said}");
    assert_eq!(std::fs::read(sandbox.path("diary")).expect("there"), b"dear diary");
    let (code, said) = as_somebody_else(&sandbox, "serve --nbd unix:nowhere/nbd.sock");
    assert!(code == Some(1) && said.contains("nowhere") && said.contains("hint: "), "{said}");
    // Nobody else was harmed, and a socket that nobody listens at any more is replaced.
    let data = unique_bytes(1 << 20, 1);
    sandbox.write("tank/a", 0, &data);
    daemon.kill();
    drop(UnixListener::bind(sandbox.path("stale.sock")).expect("bound"));
    let daemon = Daemon::start(&sandbox, "--nbd unix:nbd.sock --nbd unix:stale.sock");
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    daemon.end();
}

#[test]
fn drives_in_use_by_another_process_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    sandbox.ok("volume create tank/a --layout raid5 --size 8MiB");
    let data = unique_bytes(3_000_000, 2);
    sandbox.write("tank/a", 0, &data);
    let daemon = Daemon::start(&sandbox, "");
    let holder = format!("in use by process {}", daemon.id());
    for words in ["pool create mine @d/drive0.img", "pool create mine @d/drive0.img @d/drive1.img --force"] {
        let (code, said) = as_somebody_else(&sandbox, words);
        assert!(code == Some(1) && said.contains(&holder) && said.contains("hint: "), "{words}: {said}");
    }
    // It may be known, but not used.
    let (code, said) = as_somebody_else(&sandbox, "pool import --dir @d --all");
    assert!(code == Some(0) && said.contains(&format!("pool tank is {holder}")), "{said}");
    let own = sandbox.ok("pool import --dir @d tank");
    assert!(!own.err.contains("pool tank is in use") && !own.text().contains("in use"), "{}", own.err);
    for words in
        ["serve tank", "pool destroy tank --yes", "volume delete tank/a --yes", "pool scrub tank --wait"]
    {
        let (code, said) = as_somebody_else(&sandbox, words);
        assert!(code == Some(1) && said.contains(&holder), "{words}: {said}");
        assert!(said.contains("error: ") && said.contains("hint: "), "{words}: {said}");
    }
    sandbox.ok("drive make @e --count 1 --size 32MiB");
    sandbox.ok("pool create mine @e/drive0.img");
    assert!(sandbox.fails("pool add mine @d/drive1.img --force").contains("hint: "));
    // All of its drives as before.
    sandbox.run("pool status tank").expect_code(0);
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    daemon.end();
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
}
