//! Several processes on one pool, and killed processes: one process at a time may change the pool,
//! others may read its state, and the next process continues the work.
//!
//! Invariant I28 (`docs/internals/invariants.md`).

use std::process::Child;
use std::time::{Duration, Instant};

use crate::kit::programs::{program, succeeds};
use crate::kit::{Sandbox, unique_bytes};

/// Number of bytes to rebuild.
const LENGTH: usize = 72 << 20;

/// Creates a degraded pool with a pending rebuild onto a slow drive.
fn due_for_rebuild(pace: &str) -> (Sandbox, Vec<u8>) {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 2 --size 80MiB");
    sandbox.ok(&format!("drive make @d --count 1 --size 80MiB --first 2 --pace {pace}"));
    sandbox.ok("pool create tank @d/drive0.img @d/drive1.img");
    sandbox.ok("volume create tank/a --layout raid1");
    let data = unique_bytes(LENGTH, 21);
    sandbox.write("tank/a", 0, &data);
    std::fs::remove_file(sandbox.path("d/drive1.img")).expect("there");
    sandbox.ok("pool replace tank @d/drive1.img @d/drive2.img");
    (sandbox, data)
}

fn rebuild_percent(sandbox: &Sandbox) -> Option<f64> {
    let answer = sandbox.run("pool status --json");
    assert!(matches!(answer.code, 0 | 3), "{}", answer.err);
    answer.json()["pools"][0]["activity"][0]["percent"].as_f64()
}

/// Waits until the status, read by another process, shows a running rebuild.
fn until_under_way(sandbox: &Sandbox, child: &mut Child) -> f64 {
    let start = Instant::now();
    loop {
        match rebuild_percent(sandbox) {
            Some(percent) if percent > 5.0 => return percent,
            _ => assert!(start.elapsed() < Duration::from_secs(30), "the rebuild does not begin"),
        }
        assert!(child.try_wait().expect("a child").is_none(), "it ended early");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_killed_rebuild_resumes_and_shows_progress() {
    let (sandbox, data) = due_for_rebuild("6MB/s");
    let mut child = sandbox.command("pool wait tank rebuild").spawn().expect("started");
    let percent = until_under_way(&sandbox, &mut child);
    assert!(percent < 100.0);
    // A command that would change the pool waits a moment, then names the process that has it.
    let refused = sandbox.fails("volume delete tank/a --yes");
    let says = format!("error: pool `tank` is in use by process {} (`pool wait tank rebuild`)", child.id());
    assert!(refused.starts_with(&says), "{refused}");

    // After a SIGKILL, the next process resumes and reports the progress.
    child.kill().expect("killed");
    let output = child.wait_with_output().expect("ended");
    let progress = String::from_utf8(output.stderr).expect("text");
    assert!(progress.contains("rebuild of tank/a: ") && progress.contains(" left"), "{progress}");
    let done = sandbox.ok("pool wait tank rebuild");
    assert!(done.text().contains("the rebuild of pool tank is complete"), "{}", done.text());
    std::fs::remove_file(sandbox.path("d/drive0.img")).expect("there");
    assert!(sandbox.read("tank/a", 0, LENGTH) == data, "the rebuilt drive holds all of it");
}

#[test]
fn an_interrupted_wait_keeps_its_progress() {
    // Slow enough not to finish before the signal, however busy the host is.
    let (sandbox, _) = due_for_rebuild("3MB/s");
    let mut child = sandbox.command("pool wait tank rebuild --quiet").spawn().expect("started");
    let reached = until_under_way(&sandbox, &mut child);
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill runs").success());
    let output = child.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(1));
    let says = String::from_utf8(output.stderr).expect("text");
    assert!(says.starts_with("error: interrupted; the rebuild of pool `tank` is not done"), "{says}");
    assert!(says.contains("hint: `stripewise pool wait tank rebuild` resumes it"), "{says}");
    assert!(reached < 100.0 && rebuild_percent(&sandbox).is_some(), "it is still due");
    let shown = sandbox.json("volume show tank/a");
    let drives = shown["volumes"][0]["drives"].as_array().expect("a list");
    let lacking: u64 = drives.iter().filter_map(|drive| drive["lacking_bytes"].as_u64()).sum();
    assert!((1..70 << 20).contains(&lacking), "what was done is kept: {shown}");
}

/// Creates a volume with data, and kills a process that overwrites it while its input is open.
fn killed_writer(layout: &str) -> (Sandbox, Vec<u8>, Vec<u8>) {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok(&format!("volume create tank/a --layout {layout}"));
    let data = unique_bytes(32 << 20, 22);
    sandbox.write("tank/a", 0, &data);
    let mut child =
        sandbox.command("volume write tank/a").stdin(std::process::Stdio::piped()).spawn().expect("started");
    let mut stdin = child.stdin.take().expect("piped");
    let noise = unique_bytes(20 << 20, 23);
    std::io::Write::write_all(&mut stdin, &noise).expect("it reads");
    child.kill().expect("killed");
    child.wait().expect("ended");
    (sandbox, data, noise)
}

/// True if the redundancy is consistent: reads without a drive return the same bytes as with it,
/// old or new.
fn is_whole(sandbox: &Sandbox, data: &[u8], noise: &[u8]) {
    let whole = sandbox.read("tank/a", 0, data.len());
    for (index, block) in whole.chunks(512).enumerate() {
        let place = index * 512..index * 512 + 512;
        assert!(
            *block == data[place.clone()] || noise.get(place).is_some_and(|new| new == block),
            "block {index}"
        );
    }
    std::fs::remove_file(sandbox.path("d/drive1.img")).expect("there");
    assert!(sandbox.read("tank/a", 0, data.len()) == whole);
}

#[test]
fn stripes_of_a_killed_writer_are_resynced() {
    let (sandbox, data, noise) = killed_writer("raid10 --checksums off");
    let status = sandbox.json("pool status");
    assert_eq!(status["pools"][0]["activity"][0]["kind"], "scrub");
    assert_eq!(status["pools"][0]["action"], "stripewise pool wait tank scrub");
    assert_eq!(sandbox.json("pool wait tank scrub")["worked"], true);
    assert_eq!(sandbox.json("pool status")["pools"][0]["activity"], serde_json::json!([]));
    is_whole(&sandbox, &data, &noise);
}

#[test]
fn a_journal_leaves_nothing_to_resync() {
    let (sandbox, data, noise) = killed_writer("raid5");
    // Opening the pool for changes replays the journal.
    sandbox.ok("pool set tank rebuild-priority=medium");
    assert_eq!(sandbox.json("pool status")["pools"][0]["activity"], serde_json::json!([]));
    is_whole(&sandbox, &data, &noise);
}

#[test]
fn a_volume_is_readable_after_its_writer_is_killed() {
    let (sandbox, data, noise) = killed_writer("raid5");
    let told = "its journals were replayed";
    let first = sandbox.ok("volume read tank/a --length 4096").err;
    assert!(first.contains(told), "{first}");
    let second = sandbox.ok("volume read tank/a --length 4096").err;
    assert!(!second.contains(told), "once is enough: {second}");
    is_whole(&sandbox, &data, &noise);
}

/// A read-only file system with the drives, for the time of a test.
struct WriteProtected(String);

impl WriteProtected {
    fn drives(sandbox: &Sandbox) -> Option<Self> {
        let (folder, aside) = (sandbox.text("d"), sandbox.text("aside"));
        std::fs::rename(&folder, &aside).expect("moved");
        std::fs::create_dir(&folder).expect("made");
        let mount = ["mount", "-t", "tmpfs", "-o", "size=256m", "stripewise-test", &folder];
        if !program(&mount).status.success() {
            eprintln!("passed over: this test needs root, to mount a file system");
            return None;
        }
        let mounted = Self(folder.clone());
        succeeds(&["cp", "-a", "--sparse=always", &format!("{aside}/."), &folder]);
        succeeds(&["mount", "-o", "remount,ro", &folder]);
        Some(mounted)
    }
}

impl Drop for WriteProtected {
    fn drop(&mut self) {
        let _ = program(&["umount", "-l", &self.0]);
    }
}

#[test]
fn volumes_on_read_only_drives_recover_in_memory() {
    let (sandbox, data, noise) = killed_writer("raid5");
    let Some(_protected) = WriteProtected::drives(&sandbox) else { return };
    for _ in 0..2 {
        let whole = sandbox.read("tank/a", 0, data.len());
        for (index, block) in whole.chunks(512).enumerate() {
            let place = index * 512..index * 512 + 512;
            let is_new = noise.get(place.clone()).is_some_and(|new| new == block);
            assert!(*block == data[place] || is_new, "block {index}");
        }
    }
    sandbox.fails("volume write tank/a");
}
