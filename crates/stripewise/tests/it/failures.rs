//! Drives that fail, return, move or return wrong data: written data is read back byte for byte as
//! long as the layout allows; beyond that, an error is reported.
//!
//! Invariant I10 (`docs/internals/invariants.md`).

use crate::kit::{Sandbox, corrupt, unique_bytes};

/// Number of bytes that most tests write: several stripes, with partial stripes at both ends.
const LENGTH: usize = 3_000_001;
const OFFSET: u64 = 77_777;

fn with_volume(drives: usize, layout: &str, seed: u64) -> (Sandbox, Vec<u8>) {
    let sandbox = Sandbox::new();
    sandbox.pool(drives);
    sandbox.ok(&format!("volume create tank/a --layout {layout} --size 6MiB"));
    let data = unique_bytes(LENGTH, seed);
    sandbox.write("tank/a", OFFSET, &data);
    (sandbox, data)
}

fn lose(sandbox: &Sandbox, drive: usize) {
    std::fs::remove_file(sandbox.drive_path(drive)).expect("a drive");
}

#[test]
fn pieces_written_anywhere_are_read_back() {
    let (sandbox, mut expected) = with_volume(4, "raid5", 1);
    expected.splice(0..0, vec![0; OFFSET as usize]);
    for (offset, length) in [(0, 1), (511, 2), (65_535, 131_073), (1_000_000, 512), (2_999_999, 3)] {
        let piece = unique_bytes(length, offset as u64 + 9);
        sandbox.write("tank/a", offset as u64, &piece);
        expected[offset..offset + length].copy_from_slice(&piece);
    }
    sandbox.write("tank/a", 5, b"");
    assert!(sandbox.read("tank/a", 0, expected.len()) == expected);
    assert!(sandbox.read("tank/a", 65_000, 70_001) == expected[65_000..135_001]);
    let rest = sandbox.ok(&format!("volume read tank/a --offset {}", expected.len())).out;
    assert!(!rest.is_empty() && rest.iter().all(|&byte| byte == 0), "never written reads as zeros");
}

#[test]
fn a_pool_comes_back_in_any_order_and_under_any_name() {
    let (sandbox, data) = with_volume(4, "raid6", 2);
    sandbox.ok("pool export tank");
    assert_eq!(sandbox.json("pool list")["pools"], serde_json::json!([]));
    std::fs::create_dir(sandbox.path("moved")).expect("made");
    for (from, to) in [(0, "z.img"), (1, "a.img"), (2, "m.img"), (3, "drive0.img")] {
        std::fs::rename(sandbox.drive_path(from), sandbox.path("moved").join(to)).expect("moved");
    }
    std::fs::write(sandbox.path("moved/notes.txt"), "not a drive").expect("written");
    let imported = sandbox.json("pool import --dir @moved --all");
    assert_eq!(imported["pools"][0]["state"], "online");
    assert!(sandbox.read("tank/a", OFFSET, LENGTH) == data);
    // The new paths are recorded, and a second import does no harm.
    sandbox.ok("pool import --dir @moved tank");
    sandbox.ok("pool status");
    // A new registry, as on another host, does not know the pool yet.
    let elsewhere = |words: &str| {
        let output =
            sandbox.command(words).env("STRIPEWISE_HOME", sandbox.path("home2")).output().expect("it runs");
        (output.status.code(), output.stdout)
    };
    assert_eq!(elsewhere("pool status tank").0, Some(1));
    assert_eq!(elsewhere("pool import --dir @moved tank").0, Some(0));
    let read = elsewhere(&format!("volume read tank/a --offset {OFFSET} --length {LENGTH}"));
    assert!(read == (Some(0), data));
}

#[test]
fn a_lost_drive_is_named_and_no_data_is_lost() {
    let (sandbox, data) = with_volume(4, "raid5", 3);
    lose(&sandbox, 2);
    let status = sandbox.run("pool status").expect_code(3);
    // A long path ends its line.
    let words: Vec<&str> = status.text().split_whitespace().collect();
    assert!(
        words.join(" ").contains(&format!("{} (missing)", sandbox.text("d/drive2.img"))),
        "{}",
        status.text()
    );
    assert!(status.text().contains("action: stripewise pool replace tank "), "{}", status.text());
    assert!(sandbox.read("tank/a", OFFSET, LENGTH) == data, "degraded read");
    let changed = unique_bytes(200_000, 33);
    sandbox.write("tank/a", OFFSET + 50_000, &changed);
    let mut data = data;
    data[50_000..250_000].copy_from_slice(&changed);
    assert!(sandbox.read("tank/a", OFFSET, LENGTH) == data, "degraded write");

    // The command that the status names, with the new drive filled in.
    sandbox.ok("drive make @new --count 1 --size 32MiB");
    let status = sandbox.run("pool status --json").expect_code(3).json();
    let action = status["pools"][0]["action"].as_str().expect("text").to_owned();
    let action =
        action.strip_prefix("stripewise ").expect("a command").replace("NEW-DRIVE", "@new/drive0.img");
    sandbox.ok(&action);
    assert!(sandbox.read("tank/a", OFFSET, LENGTH) == data, "while rebuilding");
    let done = sandbox.json("pool wait tank rebuild");
    assert_eq!(done["worked"], true);
    let status = sandbox.json("pool status");
    assert_eq!(status["pools"][0]["state"], "online");
    assert_eq!(status["pools"][0]["drives"].as_array().map(Vec::len), Some(4));
    assert_eq!(sandbox.json("pool wait tank rebuild")["worked"], false);
    // The new drive holds its columns: another one can fail now.
    lose(&sandbox, 0);
    assert!(sandbox.read("tank/a", OFFSET, LENGTH) == data);
}

#[test]
fn a_drive_may_be_replaced_at_its_own_path() {
    let (sandbox, data) = with_volume(3, "raid5", 4);
    lose(&sandbox, 1);
    sandbox.ok("drive make @d --count 1 --size 32MiB --first 1");
    sandbox.ok("pool replace tank @d/drive1.img @d/drive1.img --wait");
    assert_eq!(sandbox.json("pool status")["pools"][0]["state"], "online");
    lose(&sandbox, 0);
    assert!(sandbox.read("tank/a", OFFSET, LENGTH) == data);
}

#[test]
fn a_working_drive_can_be_replaced_and_reused() {
    let (sandbox, data) = with_volume(3, "raid1 --columns 3", 5);
    sandbox.ok("drive make @new --count 1 --size 64MiB");
    sandbox.ok("pool replace tank @d/drive0.img @new/drive0.img --wait");
    assert_ne!(sandbox.json("drive show @d/drive0.img")["drives"][0]["belongs"], true);
    assert_eq!(sandbox.json("drive show @new/drive0.img")["drives"][0]["belongs"], true);
    // The old drive is wiped and can be reused.
    sandbox.ok("pool create other @d/drive0.img");
    lose(&sandbox, 1);
    lose(&sandbox, 2);
    assert!(sandbox.read("tank/a", OFFSET, LENGTH) == data, "the new drive alone holds all of it");
}

#[test]
fn raid6_survives_two_lost_drives_but_not_three() {
    let (sandbox, data) = with_volume(5, "raid6", 6);
    lose(&sandbox, 1);
    lose(&sandbox, 4);
    sandbox.run("pool status").expect_code(3);
    assert!(sandbox.read("tank/a", OFFSET, LENGTH) == data);
    lose(&sandbox, 0);
    let status = sandbox.run("pool status --json").expect_code(1).json();
    let pool = &status["pools"][0];
    assert_eq!(pool["state"], "failed");
    assert!(pool["condition"].as_str().is_some_and(|text| text.contains("volume a has failed")), "{pool}");
    let answer =
        sandbox.run(&format!("volume read tank/a --offset {OFFSET} --length {LENGTH}")).expect_code(1);
    assert!(answer.out.is_empty(), "no bytes rather than wrong ones");
    assert!(answer.err.contains("error: "), "{}", answer.err);
    sandbox.run_with_input("volume write tank/a", b"x").expect_code(1);
}

#[test]
fn a_failed_volume_recovers_when_its_drives_return() {
    let (sandbox, data) = with_volume(3, "raid5", 7);
    for drive in [0, 2] {
        std::fs::rename(sandbox.drive_path(drive), sandbox.path(&format!("away{drive}"))).expect("moved");
    }
    sandbox.run("pool status").expect_code(1);
    sandbox.run_with_input("volume write tank/a", b"x").expect_code(1);
    for drive in [0, 2] {
        std::fs::rename(sandbox.path(&format!("away{drive}")), sandbox.drive_path(drive)).expect("moved");
    }
    assert!(sandbox.read("tank/a", OFFSET, LENGTH) == data);
    sandbox.ok("pool status");
}

#[test]
fn an_outdated_drive_is_rebuilt_before_it_is_trusted() {
    let (sandbox, mut data) = with_volume(3, "raid5", 8);
    std::fs::rename(sandbox.drive_path(1), sandbox.path("away")).expect("moved");
    let changed = unique_bytes(500_000, 88);
    sandbox.write("tank/a", OFFSET, &changed);
    data[..500_000].copy_from_slice(&changed);
    std::fs::rename(sandbox.path("away"), sandbox.drive_path(1)).expect("moved");
    let status = sandbox.run("pool status --json").expect_code(3).json();
    assert_eq!(status["pools"][0]["drives"][1]["state"], "behind");
    assert_eq!(status["pools"][0]["action"], "stripewise pool wait tank rebuild");
    assert!(sandbox.read("tank/a", OFFSET, LENGTH) == data, "its outdated data is not used");
    // After the resync it counts again.
    sandbox.ok("pool wait tank rebuild");
    sandbox.ok("pool status");
    lose(&sandbox, 0);
    assert!(sandbox.read("tank/a", OFFSET, LENGTH) == data);
}

#[test]
fn a_spare_replaces_a_lost_drive() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 4 --size 32MiB");
    sandbox.ok("pool create tank @d/drive0.img @d/drive1.img @d/drive2.img --spare @d/drive3.img");
    sandbox.ok("volume create tank/a --layout raid5 --size 6MiB");
    let data = unique_bytes(LENGTH, 9);
    sandbox.write("tank/a", OFFSET, &data);
    assert_eq!(sandbox.json("pool status")["pools"][0]["drives"][3]["role"], "spare");
    lose(&sandbox, 0);
    assert_eq!(sandbox.json("pool wait tank rebuild")["worked"], true);
    sandbox.ok("pool status");
    lose(&sandbox, 1);
    assert!(sandbox.read("tank/a", OFFSET, LENGTH) == data);
}

#[test]
fn a_scrub_repairs_bit_rot_and_names_the_drive() {
    let (sandbox, data) = with_volume(4, "raid6", 10);
    let place = sandbox.place_of(2, &data[..400_000]);
    corrupt(&sandbox.drive_path(2), place, 8192);
    let done = sandbox.json("pool scrub tank --wait");
    assert_eq!(done["scrubs"][0]["volume"], "a");
    let repaired = done["scrubs"][0]["repaired"].as_array().expect("a list");
    assert_eq!(repaired.len(), 1, "{done}");
    assert_eq!(repaired[0]["path"], sandbox.text("d/drive2.img"));
    assert_eq!(repaired[0]["blocks"], 2);
    assert!(sandbox.read("tank/a", OFFSET, LENGTH) == data);
    let status = sandbox.json("pool status");
    assert_eq!(status["pools"][0]["drives"][2]["checksum_errors"], 2, "kept with the pool");
    // A second scrub finds nothing, and the repair is on the drive itself: others may fail.
    let again = sandbox.ok("pool scrub tank --wait");
    assert!(again.text().contains("no errors found"), "{}", again.text());
    lose(&sandbox, 0);
    lose(&sandbox, 1);
    assert!(sandbox.read("tank/a", OFFSET, LENGTH) == data);
}

#[test]
fn a_pool_moved_as_a_whole_is_imported_again() {
    let (sandbox, _) = with_volume(2, "raid1", 12);
    std::fs::rename(sandbox.path("d"), sandbox.path("elsewhere")).expect("moved");
    let status = sandbox.run("pool status --json").expect_code(1).json();
    assert_eq!(status["pools"][0]["state"], "failed");
    assert_eq!(status["pools"][0]["drives"][1]["state"], "missing");
    let text = sandbox.run("pool status").expect_code(1);
    assert!(text.text().contains("stripewise pool import --dir DIR tank"), "{}", text.text());
    sandbox.ok("pool import --dir @elsewhere tank");
    sandbox.ok("pool status");
}

#[test]
fn settings_are_kept() {
    let (sandbox, _) = with_volume(3, "raid5", 13);
    sandbox.ok("pool set tank rebuild-priority=high");
    assert_eq!(sandbox.json("pool status")["pools"][0]["rebuild_priority_percent"], 60);
    sandbox.ok("pool set tank rebuild-priority=7");
    assert_eq!(sandbox.json("pool status")["pools"][0]["rebuild_priority_percent"], 7);
}

#[test]
fn scrub_findings_are_shown_until_cleared() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid5 --size 16MiB");
    let nothing = sandbox.ok("pool wait tank scrub");
    assert!(nothing.text().contains("no scrub was pending, nothing was verified"), "{}", nothing.text());
    let data = unique_bytes(12 << 20, 41);
    sandbox.write("tank/a", 0, &data);
    corrupt(&sandbox.drive_path(3), sandbox.place_of(3, &data[..400_000]), 1 << 14);
    sandbox.ok("pool scrub tank --wait");
    let status = sandbox.json("pool status tank")["pools"][0].clone();
    assert!(status["last_scrub"]["repaired_blocks"].as_u64().is_some_and(|blocks| blocks > 0), "{status}");
    assert!(status["condition"].as_str().is_some_and(|text| text.contains("found wrong on")), "{status}");
    let shown = sandbox.ok("pool status tank");
    assert!(shown.text().contains("scrubbed") && shown.text().contains("repaired"), "{}", shown.text());
    // The action helps: a clean scrub, then the counters are reset.
    for _ in 0..2 {
        let status = sandbox.json("pool status tank")["pools"][0].clone();
        let action = status["action"].as_str().expect("text").to_owned();
        sandbox.ok(action.strip_prefix("stripewise ").expect("a command"));
        if action.contains("pool scrub") && !action.contains("--wait") {
            sandbox.ok("pool wait tank scrub");
        }
    }
    let status = sandbox.json("pool status tank")["pools"][0].clone();
    assert_eq!((status["action"].as_str(), &status["drives"][3]["checksum_errors"]), (Some(""), &0.into()));
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
}
