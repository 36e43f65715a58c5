//! Listen addresses and drives in use by another process: the error names the object and the
//! process, and the first process is not affected.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use crate::kit::daemon::Daemon;
use crate::kit::{Sandbox, unique_bytes};

/// Runs the program as another user, with its own state directory. Returns its exit code and
/// output.
fn as_other_user(sandbox: &Sandbox, words: &str) -> (Option<i32>, String) {
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
        let (code, said) = as_other_user(&sandbox, &format!("serve {place}"));
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("error: cannot ") && said.contains("hint: `ss -lxtp`"), "{place}: {said}");
    }
    // A file that is not a socket is left alone.
    std::fs::write(sandbox.path("diary"), "dear diary").expect("written");
    let (code, said) = as_other_user(&sandbox, "serve --nbd unix:diary");
    assert!(code == Some(1) && said.contains("not a socket") && said.contains("hint: "), "{said}");
    assert_eq!(std::fs::read(sandbox.path("diary")).expect("there"), b"dear diary");
    let (code, said) = as_other_user(&sandbox, "serve --nbd unix:nowhere/nbd.sock");
    assert!(code == Some(1) && said.contains("nowhere") && said.contains("hint: "), "{said}");
    // Other processes were not affected, and a stale socket is replaced.
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
        let (code, said) = as_other_user(&sandbox, words);
        assert!(code == Some(1) && said.contains(&holder) && said.contains("hint: "), "{words}: {said}");
    }
    // The pool may be listed, but not used.
    let (code, said) = as_other_user(&sandbox, "pool import --dir @d --all");
    assert!(code == Some(0) && said.contains(&format!("pool tank is {holder}")), "{said}");
    let own = sandbox.ok("pool import --dir @d tank");
    assert!(!own.err.contains("pool tank is in use") && !own.text().contains("in use"), "{}", own.err);
    for words in
        ["serve tank", "pool destroy tank --yes", "volume delete tank/a --yes", "pool scrub tank --wait"]
    {
        let (code, said) = as_other_user(&sandbox, words);
        assert!(code == Some(1) && said.contains(&holder), "{words}: {said}");
        assert!(said.contains("error: ") && said.contains("hint: "), "{words}: {said}");
    }
    sandbox.ok("drive make @e --count 1 --size 32MiB");
    sandbox.ok("pool create mine @e/drive0.img");
    assert!(sandbox.fails("pool add mine @d/drive1.img --force").contains("hint: "));
    // All drives are unchanged.
    sandbox.run("pool status tank").expect_code(0);
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    daemon.end();
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
}
