//! Scrubs: their schedule, in the foreground and in a daemon, and checks that write nothing.

use crate::kit::daemon::{Daemon, until};
use crate::kit::{Sandbox, corrupt, unique_bytes};

const LENGTH: usize = 3_000_001;

fn with_volume(drives: usize, layout: &str, seed: u64) -> (Sandbox, Vec<u8>) {
    let sandbox = Sandbox::new();
    sandbox.pool(drives);
    sandbox.ok(&format!("volume create tank/a --layout {layout} --size 6MiB"));
    let data = unique_bytes(LENGTH, seed);
    sandbox.write("tank/a", 0, &data);
    (sandbox, data)
}

/// Contents of the drives' files.
fn images(sandbox: &Sandbox, drives: usize) -> Vec<Vec<u8>> {
    (0..drives).map(|drive| std::fs::read(sandbox.drive_path(drive)).expect("readable")).collect()
}

#[test]
fn new_pools_are_scrubbed_monthly() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    let pool = sandbox.json("pool status")["pools"][0].clone();
    assert_eq!(pool["patrol_interval_s"], 30 * 86_400);
    let next = pool["next_scrub_unix_ms"].as_u64().expect("a time");
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_millis();
    let days = (next - now as u64) as f64 / 86_400_000.0;
    assert!((29.9..=30.0).contains(&days), "{days}");
    let shown = sandbox.ok("pool status");
    let text = shown.text();
    assert!(text.contains("next scrub: ") && text.contains("every 30 days"), "{text}");
    // Turned off, and on again by a word.
    sandbox.ok("pool set tank scrub=off");
    let pool = sandbox.json("pool status")["pools"][0].clone();
    assert!(pool["next_scrub_unix_ms"].is_null() && pool["patrol_interval_s"].is_null(), "{pool}");
    let shown = sandbox.ok("pool status");
    assert!(shown.text().contains("stripewise pool set tank scrub=monthly"), "{}", shown.text());
    for (word, days) in [("weekly", 7), ("14d", 14), ("monthly", 30)] {
        sandbox.ok(&format!("pool set tank scrub={word}"));
        assert_eq!(sandbox.json("pool status")["pools"][0]["patrol_interval_s"], days * 86_400, "{word}");
    }
    let refused = sandbox.run("pool set tank scrub=yearly").expect_code(2).err;
    assert!(refused.contains("monthly, weekly, daily"), "{refused}");
}

#[test]
fn a_scrub_without_a_daemon_runs_at_once() {
    let (sandbox, data) = with_volume(3, "raid1 --columns 3", 11);
    corrupt(&sandbox.drive_path(1), sandbox.place_of(1, &data[..200_000]), 4096);
    let done = sandbox.ok("pool scrub tank");
    let says = format!("{}: 1 corrupt block of 4 KiB", sandbox.text("d/drive1.img"));
    assert!(done.text().contains(&says), "{}", done.text());
    let pool = sandbox.json("pool status")["pools"][0].clone();
    assert_eq!(pool["activity"], serde_json::json!([]));
    assert_eq!(pool["last_scrub"]["repaired_blocks"], 1);
    assert!(sandbox.read("tank/a", 0, LENGTH) == data);
    // With a daemon the command returns at once.
    let daemon = Daemon::start(&sandbox, "");
    let asked = sandbox.ok("pool scrub tank");
    assert!(asked.text().contains("scrub running in the daemon"), "{}", asked.text());
    until("the daemon scrubs", || {
        let pool = sandbox.json("pool status")["pools"][0].clone();
        pool["activity"] == serde_json::json!([]) && pool["last_scrub"]["repaired_blocks"] == 0
    });
    daemon.end();
}

#[test]
fn a_check_lists_places_and_writes_nothing() {
    let (sandbox, data) = with_volume(3, "raid5", 12);
    let sound = sandbox.json("pool scrub tank --check-only");
    assert!(sound["scrubs"][0]["places"] == serde_json::json!([]), "{sound}");
    corrupt(&sandbox.drive_path(1), sandbox.place_of(1, &data[..200_000]), 8192);
    let before = images(&sandbox, 3);
    let found = sandbox.run("pool scrub tank --check-only --json").expect_code(1).json();
    let places = found["scrubs"][0]["places"].as_array().expect("places");
    assert_eq!(places.len(), 1, "{found}");
    assert_eq!((&places[0]["fault"], &places[0]["length_bytes"]), (&"checksum".into(), &8192.into()));
    assert_eq!(places[0]["drives"][0]["path"], sandbox.text("d/drive1.img"));
    assert_eq!(found["scrubs"][0]["wrong"][0]["blocks"], 2);
    let shown = sandbox.run("pool scrub tank --check-only").expect_code(1);
    let text = shown.text();
    for says in ["nothing was written", "wrong checksum", "drive1.img", "`stripewise pool scrub tank`"] {
        assert!(text.contains(says), "{says}: {text}");
    }
    assert!(images(&sandbox, 3) == before, "a check writes nothing");

    // The same through a daemon, which has the pool open for writing.
    let daemon = Daemon::start(&sandbox, "");
    let found = sandbox.run("pool scrub tank --check-only --json").expect_code(1).json();
    assert_eq!(found["scrubs"][0]["places"][0]["length_bytes"], 8192, "{found}");
    let place = found["scrubs"][0]["places"][0]["offset_bytes"].as_u64().expect("a number");
    let drives = sandbox.json("pool status")["pools"][0]["drives"].clone();
    assert_eq!(drives[1]["checksum_errors"], 0, "a check counts nothing: {drives}");
    daemon.end();

    // The place is right: the data there is good once it is written again.
    let range = place as usize..place as usize + 8192;
    sandbox.write("tank/a", place, &data[range.clone()]);
    sandbox.ok("pool scrub tank --check-only");
    assert!(sandbox.read("tank/a", place, range.len()) == data[range]);
}

#[test]
fn a_check_names_both_copies_without_checksums() {
    let (sandbox, data) = with_volume(2, "raid1 --checksums off", 13);
    corrupt(&sandbox.drive_path(1), sandbox.place_of(1, &data[..200_000]), 4096);
    let before = images(&sandbox, 2);
    let found = sandbox.run("pool scrub tank --check-only --json").expect_code(1).json();
    let place = &found["scrubs"][0]["places"][0];
    assert_eq!((&place["fault"], place["drives"].as_array().map(Vec::len)), (&"mismatch".into(), Some(2)));
    assert!(images(&sandbox, 2) == before);
    // The administrator decides: the good copy alone is read, and the other filled from it.
    let bad = sandbox.text("d/drive1.img");
    sandbox.ok(&format!("pool offline tank {bad}"));
    assert!(sandbox.read("tank/a", 0, LENGTH) == data);
}

#[test]
fn a_check_after_a_kill_leaves_the_drives_as_they_are() {
    let (sandbox, data) = with_volume(3, "raid5", 14);
    let daemon = Daemon::start(&sandbox, "");
    sandbox.write("tank/a", 4 << 20, &data[..1 << 20]);
    daemon.kill();
    let before = images(&sandbox, 3);
    let found = sandbox.json("pool scrub tank --check-only");
    assert_eq!(found["scrubs"][0]["places"], serde_json::json!([]), "{found}");
    assert!(images(&sandbox, 3) == before, "the journal is not replayed on the drives");
    assert!(sandbox.read("tank/a", 4 << 20, 1 << 20) == data[..1 << 20]);
}
