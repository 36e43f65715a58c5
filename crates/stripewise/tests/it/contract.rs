//! The names and JSON keys that scripts rely on: exactly these, whatever else changes.

use crate::kit::daemon::Daemon;
use crate::kit::{DRIVE_SIZE, Sandbox, keys, unique_bytes};
use serde_json::Value;

#[test]
fn drive_make_creates_only_the_drive_files() {
    let sandbox = Sandbox::new();
    let made = sandbox.json("drive make @d --count 3 --size 1MiB --pace 180MB/s,400iops");
    assert_eq!(keys(&made), ["drives", "output_version"]);
    assert_eq!(keys(&made["drives"][0]), ["capacity_bytes", "pace", "path"]);
    assert_eq!(made["drives"][2]["path"], sandbox.text("d/drive2.img"));
    let mut names: Vec<_> = std::fs::read_dir(sandbox.path("d"))
        .expect("the folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("plain names"))
        .collect();
    names.sort();
    assert_eq!(names, ["drive0.img", "drive1.img", "drive2.img"]);
    assert_eq!(std::fs::metadata(sandbox.path("d/drive0.img")).expect("there").len(), 1 << 20);
    assert!(!sandbox.path("home").exists(), "nothing to remember yet");
}

#[test]
fn drive_show_tells_what_a_drive_holds() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 3 --size 32MiB --pace 400iops");
    let empty = &sandbox.json("drive show @d/drive2.img")["drives"][0];
    for key in ["belongs", "capacity_bytes", "holds", "kind", "pace", "path", "superblock", "serial", "slot"]
    {
        assert!(empty.get(key).is_some(), "{key}: {empty}");
    }
    assert_eq!(empty["pace"], "400iops");
    assert!(empty["superblock"].is_null());
    sandbox.ok("pool create tank @d/drive0.img @d/drive1.img");
    let before = std::fs::read(sandbox.path("d/drive0.img")).expect("readable");
    let shown = sandbox.json("drive show @d/drive0.img @d/drive1.img");
    let label = &shown["drives"][0]["superblock"];
    assert_eq!(label["pool_name"], "tank");
    assert_eq!(label["state"], "online");
    assert_eq!(label["role"], "data");
    assert!(label["generation"].as_u64().is_some_and(|generation| generation > 0));
    let id = label["drive_id"].as_str().expect("an identity").to_owned();
    assert_eq!(
        sandbox.json(&format!("drive show {id}"))["drives"][0],
        shown["drives"][0],
        "named by identity"
    );
    assert!(
        before == std::fs::read(sandbox.path("d/drive0.img")).expect("readable"),
        "shown without a change"
    );
    let text = sandbox.ok("drive show @d/drive0.img");
    assert!(text.text().contains("pool: tank ("), "{}", text.text());
}

#[test]
fn pool_status_has_the_keys_promised() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    sandbox.ok("volume create tank/a --layout raid5 --size 8MiB");
    let status = sandbox.json("pool status");
    assert_eq!(keys(&status), ["output_version", "pools"]);
    let pool = &status["pools"][0];
    for key in
        ["name", "state", "capacity_bytes", "allocated_bytes", "drives", "activity", "condition", "action"]
    {
        assert!(pool.get(key).is_some(), "{key} is missing");
    }
    for key in ["id", "path", "role", "state", "read_errors", "write_errors", "checksum_errors"] {
        assert!(pool["drives"][0].get(key).is_some(), "drives[].{key} is missing");
    }
    assert_eq!(pool["name"], "tank");
    assert_eq!(pool["state"], "online");
    assert_eq!(pool["activity"], serde_json::json!([]));
    assert_eq!(pool["action"], "");
    assert_eq!(pool["drives"].as_array().map(Vec::len), Some(3));
    assert_eq!(pool["drives"][0]["path"], sandbox.text("d/drive0.img"));
    let (capacity, allocated) = (pool["capacity_bytes"].as_u64(), pool["allocated_bytes"].as_u64());
    assert_eq!(capacity, Some(3 * (29 << 20)), "all but superblocks and checksums of each drive");
    assert!(allocated.is_some_and(|bytes| (12 << 20..=24 << 20).contains(&bytes)), "{allocated:?}");
    for key in [
        "metadata_bytes",
        "map_bytes",
        "journal_bytes",
        "overhead_percent",
        "provisioned_bytes",
        "slab_bytes",
    ] {
        assert!(pool[key].as_f64().is_some_and(|value| value > 0.0), "{key}: {pool}");
    }

    std::fs::remove_file(sandbox.path("d/drive1.img")).expect("there");
    let status = sandbox.run("pool status tank --json").expect_code(3).json();
    let pool = &status["pools"][0];
    assert_eq!(pool["state"], "degraded");
    assert_eq!(pool["drives"][1]["state"], "missing");
    let action = pool["action"].as_str().expect("text");
    assert!(action.starts_with("stripewise pool replace tank "), "{action}");
    sandbox.ok("drive make @e --count 1 --size 32MiB");
    sandbox.ok("pool replace tank @d/drive1.img @e/drive0.img");
    let status = sandbox.run("pool status --json").expect_code(3).json();
    let job = &status["pools"][0]["activity"][0];
    for key in ["kind", "percent", "mb_per_s", "seconds_left"] {
        assert!(job.get(key).is_some(), "activity[].{key} is missing");
    }
    assert_eq!(job["kind"], "rebuild");
    assert_eq!(status["pools"][0]["action"], "stripewise pool wait tank rebuild");
}

#[test]
fn the_rebuild_latency_limit_is_kept_until_removed() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    let bound = || sandbox.json("pool status tank")["pools"][0]["rebuild_latency_ms"].clone();
    assert_eq!(bound(), Value::Null);
    let told = sandbox.ok("pool set tank rebuild-latency=20ms");
    assert!(told.text().contains("rebuild latency limit: 20 ms"), "{}", told.text());
    assert_eq!(bound(), 20);
    sandbox.ok("pool set tank rebuild-latency=off rebuild-priority=high");
    assert_eq!(bound(), Value::Null);
}

#[test]
fn volume_create_gives_the_reason_of_its_interleave() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    let usual = sandbox.json("volume create tank/a --layout raid5 --size 10MB");
    assert_eq!(usual["volumes"][0]["interleave_bytes"], 65_536);
    assert_eq!(usual["interleave_choice"], "usual");
    sandbox.ok("drive make @e --count 3 --size 64MiB --pace 200MB/s,200iops");
    sandbox.ok("pool create disks @e/drive0.img @e/drive1.img @e/drive2.img");
    let json = sandbox.json("volume create disks/a --layout raid5 --size 1MB");
    assert_eq!(json["volumes"][0]["interleave_bytes"], 262_144);
    assert_eq!(
        (&usual["volumes"][0]["rotation_rows"], &json["volumes"][0]["rotation_rows"]),
        (&1.into(), &4.into())
    );
    assert_eq!(json["interleave_choice"], "disks");
    let json = sandbox.json("volume create disks/m --layout raid10 --size 1MB");
    assert_eq!(json["volumes"][0]["interleave_bytes"], 262_144);
    assert_eq!(json["interleave_choice"], "disks");
    let told = sandbox.ok("volume create disks/b --layout raid5 --size 1MB");
    assert!(told.text().contains("interleave 256 KiB"), "{}", told.text());
    let has_all = |text: &str, words: &[&str]| words.iter().all(|words| text.contains(words));
    let all = ["a seek takes longer", "--interleave", "every 4 strips", "a journal of", "write-back"];
    assert!(has_all(&told.err, &all), "{}", told.err);
    let asked =
        sandbox.ok("volume create disks/c --layout raid5 --size 1MB --interleave 64K --write-through");
    assert!(has_all(&asked.err, &["every 16 strips", "a journal of"]), "{}", asked.err);
    assert!(!asked.err.contains("interleave") && !asked.err.contains("write-"), "{}", asked.err);
    assert!(!sandbox.ok("volume create tank/b --layout raid5 --size 10MB").err.contains("since on these"));
}

#[test]
fn volumes_have_their_keys() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    let created = sandbox.json("volume create tank/a --layout raid10 --interleave 16K --size 10MB");
    let shown = sandbox.json("volume show tank/a");
    assert_eq!(shown, sandbox.json("volume list"));
    assert_eq!(shown["volumes"], created["volumes"]);
    assert_eq!(created["interleave_choice"], "asked");
    let volume = &shown["volumes"][0];
    let expected = [
        "allocated_bytes",
        "allocated_rows",
        "capacity_bytes",
        "checksums",
        "clone_of",
        "columns",
        "conversion",
        "drives",
        "failure",
        "fast_bytes",
        "groups",
        "id",
        "interleave_bytes",
        "journal_area_bytes",
        "layout",
        "log",
        "lost_blocks",
        "name",
        "pin",
        "pool",
        "receiving",
        "redundancy_left",
        "rotation_rows",
        "rows",
        "slice_extent_bytes",
        "slices",
        "snapshot_schedule",
        "state",
        "thin",
        "tiers",
        "write_back",
        "written_bytes",
    ];
    assert_eq!(keys(volume), expected);
    assert_eq!((&volume["layout"], &volume["interleave_bytes"]), (&"raid10".into(), &16_384.into()));
    assert_eq!((&volume["columns"], &volume["state"]), (&4.into(), &"online".into()));
    assert!(volume["capacity_bytes"].as_u64().is_some_and(|bytes| bytes >= 10_000_000));
    let gone = sandbox.json("volume delete tank/a --yes");
    assert_eq!(gone["volumes"], serde_json::json!([]));
}

#[test]
fn layouts_go_by_all_their_names() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 8 --size 256MiB");
    let drives: Vec<String> = (0..8).map(|index| format!("@d/drive{index}.img")).collect();
    sandbox.ok(&format!("pool create tank {}", drives.join(" ")));
    let layouts = [
        ("single --columns 1", "single", 1),
        ("raid0", "raid0", 8),
        ("simple", "raid0", 8),
        ("raid1 --columns 2", "raid1", 2),
        ("raid1 --columns 3", "raid1", 3),
        ("mirror --columns 2", "raid1", 2),
        ("mirror3", "raid1", 3),
        ("raid4", "raid4", 8),
        ("raid5 --columns 5", "raid5", 5),
        ("parity", "raid5", 8),
        ("raidz1", "raid5", 8),
        ("raid6", "raid6", 8),
        ("dual-parity", "raid6", 8),
        ("raidz2", "raid6", 8),
        ("raid7", "raid7", 8),
        ("raidz3", "raid7", 8),
        ("raid10", "raid10", 8),
        ("raid10 --columns 5", "raid10", 5),
        ("raid50 --groups 2", "raid50", 8),
        ("raid60 --groups 2", "raid60", 8),
    ];
    let data = unique_bytes(700_000, 1);
    for (index, (words, layout, columns)) in layouts.iter().enumerate() {
        let created = sandbox.json(&format!("volume create tank/v{index} --layout {words} --size 1MiB"));
        let volume = &created["volumes"][0];
        assert_eq!(
            (&volume["layout"], &volume["columns"]),
            (&(*layout).into(), &(*columns).into()),
            "{words}"
        );
        sandbox.write(&format!("tank/v{index}"), 3333, &data);
    }
    for (index, layout) in layouts.iter().enumerate() {
        assert!(sandbox.read(&format!("tank/v{index}"), 3333, data.len()) == data, "{layout:?}");
    }
}

#[test]
fn results_go_to_stdout_and_messages_to_stderr() {
    let sandbox = Sandbox::new();
    let made = sandbox.ok(&format!("drive make @d --count 2 --size {DRIVE_SIZE} --json"));
    made.json();
    assert_eq!(made.err, "");
    let created = sandbox.ok("pool create tank @d/drive0.img @d/drive1.img");
    assert!(created.text().starts_with("pool tank: 2 drives"), "{}", created.text());
    assert!(created.err.starts_with("next: "), "{}", created.err);
    assert_eq!(sandbox.ok("pool status --quiet").err, "");
    let failed = sandbox.run("volume show tank/none --json").expect_code(1);
    assert_eq!(keys(&failed.json()), ["error", "hint", "output_version"]);
    assert_eq!(failed.err, "error: pool `tank` has no volume `none`\nhint: it has no volumes yet\n");
    for words in ["--help", "pool --help", "volume create --help", "--version"] {
        assert!(!sandbox.ok(words).out.is_empty(), "{words}");
    }
    assert!(sandbox.run("").expect_code(2).err.contains("Usage:"));
    assert!(sandbox.run("pool status tank --colour").expect_code(2).err.contains("unexpected argument"));
}

#[test]
fn usage_errors_are_documents_with_json() {
    let sandbox = Sandbox::new();
    for words in ["pool status tank --colour", "volume create", "volume create tank/a --layout raid9", "no"] {
        let plain = sandbox.run(words).expect_code(2);
        assert!(plain.out.is_empty() && plain.err.contains("Usage:") || plain.err.contains("raid9"));
        let failed = sandbox.run(&format!("{words} --json")).expect_code(2);
        assert_eq!(keys(&failed.json()), ["error", "hint", "output_version"], "{words}");
        assert!(!failed.json()["error"].as_str().expect("text").starts_with("error:"), "{words}");
        assert!(failed.err.starts_with("error: "), "{words}: {}", failed.err);
    }
}

/// Lines that a terminal of this width would break; words without a space in them are not counted.
fn too_wide(text: &str, columns: usize) -> Vec<&str> {
    let is_one_word = |line: &str| {
        let value = line.split_once(": ").map_or(line, |(_, value)| value);
        !value.trim().contains(' ')
    };
    let is_too_wide = |line: &&str| line.chars().count() > columns && !is_one_word(line);
    text.lines().filter(is_too_wide).collect()
}

#[test]
fn status_fits_80_columns_and_60() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a-volume-with-a-long-name --layout raid5 --size 8MiB");
    std::fs::remove_file(sandbox.drive_path(2)).expect("removed");
    let check = || {
        for (asked, columns) in [(None, 80), (Some("60"), 60), (Some("80"), 80)] {
            let mut status = sandbox.command("pool status");
            if let Some(asked) = asked {
                status.env("COLUMNS", asked);
            }
            let output = status.output().expect("run");
            assert_eq!(output.status.code(), Some(3));
            let text = String::from_utf8(output.stdout).expect("text");
            assert!(text.contains("CKSUM") && text.contains("a-volume-with-a-long-name"), "{text}");
            assert_eq!(too_wide(&text, columns), Vec::<&str>::new(), "{text}");
        }
    };
    check();
    // Another process makes the text, and knows the caller's terminal.
    let daemon = Daemon::start(&sandbox, "");
    check();
    daemon.end();
}

#[test]
fn a_closed_output_pipe_is_not_a_failure() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("volume create tank/a --layout raid0");
    let mut child = sandbox.command("volume read tank/a").spawn().expect("started");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
