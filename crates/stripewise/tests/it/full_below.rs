//! Drives that are files, in a file system that runs full: what the commands and a daemon say, and
//! what goes on. Passed over, with a word about it, where the tests do not run as root: the file
//! system is one of their own, in memory.
//!
//! Invariant I29 (`docs/internals/invariants.md`).

use std::path::PathBuf;

use crate::kit::daemon::{Daemon, until};
use crate::kit::programs::{program, succeeds};
use crate::kit::{Answer, Sandbox, unique_bytes};
use serde_json::Value;

const MIB: usize = 1 << 20;

/// A small file system at @d, for the time of a test.
struct Small(PathBuf);

impl Small {
    fn mount(sandbox: &Sandbox) -> Option<Self> {
        let folder = sandbox.path("d");
        std::fs::create_dir(&folder).expect("made");
        let at = folder.display().to_string();
        if !program(&["mount", "-t", "tmpfs", "-o", "size=72m", "stripewise-test", &at]).status.success() {
            eprintln!("passed over: this test needs root, to mount a small file system");
            return None;
        }
        Some(Self(folder))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = program(&["umount", "-l", &self.0.display().to_string()]);
    }
}

fn status(sandbox: &Sandbox) -> (i32, Value) {
    let answer = sandbox.run("pool status tank --json");
    (answer.code, answer.json()["pools"][0].clone())
}

/// Writes more than there is room for; how many bytes of it are durable by what it says.
fn fill_up(sandbox: &Sandbox, volume: &str, data: &[u8]) -> usize {
    let Answer { code, err, .. } = sandbox.run_with_input(&format!("volume write {volume} --offset 0"), data);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("full (ENOSPC)") && err.contains("drive"), "{err}");
    match err.split_once("of this write, the first ") {
        Some((_, first)) => first.split_whitespace().next().expect("a number").parse().expect("a number"),
        None => {
            assert!(err.contains("nothing of this write is known to be durable"), "{err}");
            0
        }
    }
}

fn is_full(sandbox: &Sandbox) {
    let (code, status) = status(sandbox);
    let (condition, action) = (status["condition"].as_str().unwrap(), status["action"].as_str().unwrap());
    assert_eq!((code, status["state"].as_str()), (3, Some("degraded")), "{condition}");
    assert!(
        condition.contains("full (ENOSPC)") && action.contains("free space there"),
        "{condition}: {action}"
    );
    for drive in status["drives"].as_array().expect("drives") {
        assert_eq!(drive["state"], "online", "no drive is given up");
    }
}

/// A pool on sparse files with more room than there is, and 6 MiB that are durable in a volume of
/// it.
fn overcommitted(sandbox: &Sandbox, layout: &str) -> Vec<u8> {
    sandbox.ok("drive make @d --count 4 --size 32MiB --overcommit");
    sandbox.ok("pool create tank @d/drive0.img @d/drive1.img @d/drive2.img @d/drive3.img");
    sandbox.ok(&format!("volume create tank/kept --layout {layout} --size 12MiB"));
    sandbox.ok(&format!("volume create tank/big --layout {layout} --size 24MiB"));
    let kept = unique_bytes(6 * MIB, 1);
    sandbox.write("tank/kept", 0, &kept);
    kept
}

#[test]
fn a_full_file_system_is_reported_and_loses_no_data() {
    let sandbox = Sandbox::new();
    let Some(small) = Small::mount(&sandbox) else { return };
    let kept = overcommitted(&sandbox, "raid6");
    let data = unique_bytes(24 * MIB, 2);
    let durable = fill_up(&sandbox, "tank/big", &data);
    is_full(&sandbox);
    assert!(sandbox.read("tank/kept", 0, kept.len()) == kept);
    assert!(sandbox.read("tank/big", 0, durable) == data[..durable], "what was said to be durable is there");

    sandbox.ok("volume delete tank/big --yes");
    sandbox.run("pool status tank").expect_code(0);
    sandbox.ok("volume create tank/other --layout raid6 --size 4MiB");
    sandbox.write("tank/other", 0, &data[..MIB]);
    assert!(sandbox.read("tank/other", 0, MIB) == data[..MIB]);
    assert!(sandbox.read("tank/kept", 0, kept.len()) == kept);
    let scrub = sandbox.ok("pool scrub tank --wait");
    assert!(scrub.text().contains("no errors found"), "{}", scrub.text());
    drop(small);
}

#[test]
fn a_daemon_on_a_full_file_system_serves_reads() {
    let sandbox = Sandbox::new();
    let Some(small) = Small::mount(&sandbox) else { return };
    let kept = overcommitted(&sandbox, "raid5");
    // Elsewhere than the drives: something that can be made to go away.
    let other = small.0.join("other");
    std::fs::write(&other, vec![1; 8 * MIB]).expect("written");
    let daemon = Daemon::start(&sandbox, "tank");
    let data = unique_bytes(24 * MIB, 2);
    let durable = fill_up(&sandbox, "tank/big", &data);
    until("it is logged", || daemon.said().contains("ENOSPC"));
    is_full(&sandbox);
    assert!(sandbox.read("tank/kept", 0, kept.len()) == kept);
    assert!(sandbox.read("tank/big", 0, durable) == data[..durable]);

    std::fs::remove_file(other).expect("removed");
    let (_, now) = status(&sandbox);
    let action = now["action"].as_str().expect("text");
    let (_, command) = action.split_once("then: stripewise ").expect("a command");
    let done = sandbox.ok(command);
    assert!(done.text().contains("reopened") || done.err.contains("reopened"), "{}", done.err);
    sandbox.run("pool status tank").expect_code(0);
    assert!(sandbox.read("tank/big", 0, durable) == data[..durable]);
    let end = data.len().min(durable + 2 * MIB);
    sandbox.write("tank/big", durable as u64, &data[durable..end]);
    assert!(sandbox.read("tank/big", 0, end) == data[..end]);
    sandbox.ok("volume delete tank/big --yes");
    assert!(daemon.end().contains("ENOSPC"));
    succeeds(&["sync"]);
    assert!(sandbox.read("tank/kept", 0, kept.len()) == kept);
}
