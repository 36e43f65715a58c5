//! Adding, removing and replacing drives by command: no data is lost, and every command names the
//! next one.

use std::os::unix::fs::MetadataExt;

use crate::kit::{Answer, Sandbox, keys, unique_bytes};
use serde_json::Value;

const LENGTH: usize = 5_000_001;

/// Creates a RAID 5 volume with data, on drives @d/drive0.img …
fn with_volume(drives: usize, seed: u64) -> (Sandbox, Vec<u8>) {
    let sandbox = Sandbox::new();
    sandbox.pool(drives);
    sandbox.ok("volume create tank/a --layout raid5 --columns 3 --size 12MiB");
    let data = unique_bytes(LENGTH, seed);
    sandbox.write("tank/a", 4097, &data);
    (sandbox, data)
}

fn holds(sandbox: &Sandbox, data: &[u8]) -> bool {
    sandbox.read("tank/a", 4097, data.len()) == data
}

fn status(sandbox: &Sandbox) -> Value {
    let answer: Answer = sandbox.run("pool status tank --json");
    assert!(matches!(answer.code, 0 | 3), "{}", answer.err);
    answer.json()["pools"][0].clone()
}

fn drive<'a>(status: &'a Value, path: &str) -> Option<&'a Value> {
    status["drives"].as_array().expect("a list").iter().find(|drive| drive["path"] == path)
}

fn lose(sandbox: &Sandbox, name: &str) {
    std::fs::remove_file(sandbox.path(name)).expect("a drive");
}

#[test]
fn an_added_drive_adds_its_own_capacity() {
    let (sandbox, data) = with_volume(3, 1);
    let before = status(&sandbox)["capacity_bytes"].as_u64().expect("a number");
    sandbox.ok("drive make @e --count 1 --size 64MiB");
    let added = sandbox.ok("pool add tank @e/drive0.img");
    assert!(added.text().starts_with("pool tank: 1 drive added for volumes\n"), "{}", added.text());
    let now = status(&sandbox);
    assert_eq!(drive(&now, &sandbox.text("e/drive0.img")).expect("there")["role"], "data");
    let more = now["capacity_bytes"].as_u64().expect("a number") - before;
    assert!((20 << 20..40 << 20).contains(&more), "what a layout over three drives can use of it: {more}");
    sandbox.ok("volume create tank/wide --layout raid6 --size 8MiB");
    assert!(holds(&sandbox, &data));
}

#[test]
fn roles_are_given_and_shown() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 8 --size 32MiB");
    sandbox.ok(
        "pool create tank @d/drive0.img @d/drive1.img @d/drive2.img --spare @d/drive3.img --journal @d/drive4.img --fast \
         @d/drive5.img",
    );
    sandbox.ok("pool add tank @d/drive6.img --as journal");
    sandbox.ok("pool add tank @d/drive7.img --as spare");
    let now = status(&sandbox);
    for (index, role) in
        ["data", "data", "data", "spare", "journal", "fast", "journal", "spare"].iter().enumerate()
    {
        let path = sandbox.text(&format!("d/drive{index}.img"));
        assert_eq!(drive(&now, &path).expect("there")["role"], *role, "{path}");
        assert_eq!(sandbox.json(&format!("drive show {path}"))["drives"][0]["superblock"]["role"], *role);
    }
    let status = sandbox.ok("pool status");
    // With long paths, a drive takes several lines.
    let words: Vec<&str> = status.text().split_whitespace().collect();
    assert!(words.join(" ").contains("journal online"), "{}", status.text());
    assert!(sandbox.run("pool add tank @d/drive7.img --as cache").expect_code(2).err.contains("journal"));
}

#[test]
fn adding_a_drive_to_a_degraded_pool_rebuilds_it() {
    let (sandbox, data) = with_volume(3, 2);
    lose(&sandbox, "d/drive1.img");
    sandbox.run("pool status").expect_code(3);
    sandbox.ok("drive make @e --count 1 --size 32MiB");
    let added = sandbox.ok("pool add tank @e/drive0.img");
    assert!(added.text().contains("`stripewise pool wait tank rebuild` does it now"), "{}", added.text());
    assert_eq!(sandbox.json("pool wait tank rebuild")["worked"], true);
    lose(&sandbox, "d/drive0.img");
    assert!(holds(&sandbox, &data), "the drive added holds its part");
}

#[test]
fn retiring_a_drive_never_lowers_redundancy() {
    let (sandbox, data) = with_volume(4, 3);
    let path = sandbox.text("d/drive1.img");
    let asked = sandbox.ok("pool retire tank @d/drive1.img");
    assert!(asked.text().contains("will be evacuated"), "{}", asked.text());
    assert_eq!(drive(&status(&sandbox), &path).expect("still there")["state"], "retiring");
    assert!(holds(&sandbox, &data));
    sandbox.ok("pool wait tank rebuild");
    let now = status(&sandbox);
    assert_eq!((&now["state"], drive(&now, &path)), (&Value::from("online"), None));
    assert_ne!(sandbox.json("drive show @d/drive1.img")["drives"][0]["belongs"], true);
    lose(&sandbox, "d/drive1.img");
    sandbox.ok("pool status");
    lose(&sandbox, "d/drive0.img");
    assert!(holds(&sandbox, &data), "with all its redundancy on the others");

    let (sandbox, data) = with_volume(3, 4);
    let refused = sandbox.fails("pool retire tank @d/drive2.img");
    assert!(refused.contains("cannot retire") && refused.contains("hint: "), "{refused}");
    assert!(holds(&sandbox, &data));
    sandbox.ok("pool status");
}

#[test]
fn a_full_pool_uses_an_added_drive() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid5 --columns 4 --size 90MiB --thin");
    let data = unique_bytes(1 << 20, 31);
    let mut rows = 0;
    let write = |row: u64| {
        sandbox.run_with_input(&format!("volume write tank/a --offset {}", row * (3 << 20)), &data).code == 0
    };
    while write(rows) {
        rows += 1;
        assert!(rows < 30, "it is full some time");
    }
    sandbox.ok("drive make @e --count 1 --size 32MiB");
    let added = sandbox.ok("pool add tank @e/drive0.img");
    assert!(added.text().contains("not running"), "{}", added.text());
    assert!(added.text().contains("`stripewise pool wait tank rebalance` does it now"), "{}", added.text());
    let now = status(&sandbox);
    let free = |status: &Value| {
        let bytes = |key: &str| status[key].as_u64().expect("a number");
        bytes("capacity_bytes") - bytes("allocated_bytes")
    };
    assert!(free(&now) < 4 << 20, "rows over four drives have no use for what one has: {now}");
    assert_eq!(
        (&now["activity"][0]["kind"], &now["activity"][0]["volume"]),
        (&"rebalance".into(), &"".into())
    );
    assert!(sandbox.ok("pool rebalance tank --stop").text().contains("rebalance stopped"));
    assert!(sandbox.ok("pool rebalance tank --stop").text().contains("no rebalance is pending"));
    assert_eq!(status(&sandbox)["action"], "stripewise pool rebalance tank");
    // Without a daemon nothing else would do it.
    let done = sandbox.ok("pool rebalance tank");
    assert_eq!(done.text(), "the rebalance of pool tank is complete\n");
    let now = status(&sandbox);
    assert!(free(&now) > 12 << 20 && now["activity"] == Value::Array(Vec::new()), "{now}");
    let first = rows;
    while write(rows) {
        rows += 1;
    }
    assert!(rows >= first + 4, "{first} rows before, {rows} now");
    for row in 0..rows {
        assert!(sandbox.read("tank/a", row * (3 << 20), data.len()) == data, "row {row}");
    }
    assert!(sandbox.ok("pool rebalance tank").text().contains("nothing to rebalance"));
    assert_eq!(sandbox.json("pool wait tank rebalance")["worked"], false);
    assert_eq!(sandbox.run("pool rebalance tank --wait --stop").code, 2);
}

#[test]
fn a_replaced_drive_serves_until_the_rebuild_is_done() {
    let (sandbox, data) = with_volume(3, 21);
    sandbox.ok("drive make @e --count 1 --size 32MiB");
    sandbox.ok("drive make @e --count 1 --size 8MiB --first 1");
    let refused = sandbox.fails("pool replace tank @d/drive1.img @e/drive1.img");
    assert!(
        refused.contains("is too small") && refused.contains("hint: give a drive of at least"),
        "{refused}"
    );
    let begun = sandbox.ok("pool replace tank @d/drive1.img @e/drive0.img");
    assert!(begun.text().contains("both stay in use until the copy is complete"), "{}", begun.text());
    assert!(begun.err.contains("no volume loses redundancy"), "{}", begun.err);
    let (old, new) = (sandbox.text("d/drive1.img"), sandbox.text("e/drive0.img"));
    let now = status(&sandbox);
    assert_eq!((&now["state"], &now["volumes"][0]["redundancy_left"]), (&"online".into(), &1.into()));
    let condition = now["condition"].as_str().expect("text");
    assert!(condition.contains(&format!("replacing {old} with {new}, 0.0 % done")), "{condition}");
    assert_eq!(now["action"], "stripewise pool wait tank rebuild");
    let (from, to) = (drive(&now, &old).expect("there"), drive(&now, &new).expect("there"));
    assert_eq!(
        (&from["state"], &from["successor"], &to["role"]),
        (&"replacing".into(), &to["id"], &"data".into())
    );
    assert_eq!((&now["activity"][0]["kind"], &now["activity"][0]["drive"]), (&"rebuild".into(), &to["id"]));
    let refused = sandbox.fails("pool replace tank @d/drive1.img @e/drive1.img");
    assert!(
        refused.contains("is being replaced with") && refused.contains("hint: `stripewise pool wait"),
        "{refused}"
    );
    // A second drive is lost while the old one is still in use.
    lose(&sandbox, "d/drive2.img");
    assert!(holds(&sandbox, &data));
    sandbox.run("pool wait tank rebuild");
    let now = sandbox.run("pool status --json").expect_code(3).json()["pools"][0].clone();
    assert!(drive(&now, &old).is_none(), "{now}");
    assert!(holds(&sandbox, &data));
    let told = sandbox.ok("pool events tank");
    assert!(told.text().contains(&format!("{new} replaced {old}")), "{}", told.text());
}

#[test]
fn a_drive_taken_offline_catches_up() {
    let (sandbox, mut data) = with_volume(3, 5);
    let id = drive(&status(&sandbox), &sandbox.text("d/drive2.img")).expect("there")["id"].clone();
    let id = id.as_str().expect("an identity");
    let off = sandbox.ok("pool offline tank @d/drive2.img");
    assert!(off.text().contains(&format!("`stripewise pool online tank {id}`")), "{}", off.text());
    let now = sandbox.run("pool status --json").expect_code(3).json()["pools"][0].clone();
    assert_eq!(drive(&now, &sandbox.text("d/drive2.img")).expect("there")["state"], "offline");
    let action = now["action"].as_str().expect("text");
    assert!(action.starts_with(&format!("stripewise pool online tank {id}")), "{action}");
    let changed = unique_bytes(300_000, 55);
    sandbox.write("tank/a", 4097, &changed);
    data[..300_000].copy_from_slice(&changed);
    assert!(holds(&sandbox, &data));
    // A second drive cannot be taken offline.
    let refused = sandbox.fails("pool offline tank @d/drive0.img");
    assert!(refused.contains("could not be read: a"), "{refused}");

    // The drive returns under another path; its ID may be abbreviated.
    std::fs::rename(sandbox.drive_path(2), sandbox.path("moved.img")).expect("moved");
    sandbox.ok("pool online tank @moved.img --wait");
    let now = sandbox.json("pool status")["pools"][0].clone();
    assert_eq!(drive(&now, &sandbox.text("moved.img")).expect("there")["id"], id);
    sandbox.ok(&format!("pool offline tank {}", &id[..8]));
    sandbox.ok(&format!("pool online tank {} --wait", &id[..8]));
    lose(&sandbox, "d/drive0.img");
    assert!(holds(&sandbox, &data), "changed data was copied");
}

#[test]
fn only_empty_drives_can_be_removed() {
    let (sandbox, data) = with_volume(3, 6);
    sandbox.ok("drive make @e --count 2 --size 32MiB");
    sandbox.ok("pool add tank @e/drive0.img --as spare");
    let refused = sandbox.fails("pool remove tank @d/drive1.img");
    assert!(refused.contains("pool retire"), "what to type instead: {refused}");
    let removed = sandbox.ok("pool remove tank @e/drive0.img");
    assert!(removed.text().contains("was removed from pool tank"), "{}", removed.text());
    assert_eq!(drive(&status(&sandbox), &sandbox.text("e/drive0.img")), None);
    // Other pools can use it without --force.
    sandbox.ok("pool create other @e/drive0.img");
    let refused = sandbox.fails("pool add tank @e/drive0.img");
    assert!(refused.contains("holds a drive of pool `other`"), "whose it is: {refused}");
    let refused = sandbox.fails("pool add tank @d/drive0.img");
    assert!(refused.contains("is a drive of this pool already"), "{refused}");
    assert!(sandbox.fails("pool add tank @e/drive1.img @e/drive1.img").contains("given twice"));
    assert!(holds(&sandbox, &data));
}

#[test]
fn a_spare_is_named_as_the_replacement() {
    let (sandbox, data) = with_volume(3, 7);
    sandbox.ok("drive make @e --count 1 --size 32MiB");
    sandbox.ok("pool add tank @e/drive0.img --as spare");
    let id = drive(&status(&sandbox), &sandbox.text("e/drive0.img")).expect("there")["id"].clone();
    let id = id.as_str().expect("an identity");
    sandbox.ok(&format!("pool replace tank @d/drive0.img {} --wait", &id[..10]));
    assert_eq!(drive(&status(&sandbox), &sandbox.text("d/drive0.img")), None);
    lose(&sandbox, "d/drive1.img");
    assert!(holds(&sandbox, &data));
}

#[test]
fn pool_events_are_recorded_in_order() {
    let (sandbox, _) = with_volume(4, 8);
    sandbox.ok("pool offline tank @d/drive1.img");
    sandbox.ok("pool online tank @d/drive1.img --wait");
    let events = sandbox.json("pool events tank");
    assert_eq!(keys(&events), ["events", "output_version", "pool"]);
    let list = events["events"].as_array().expect("a list");
    assert_eq!(keys(&list[0]), ["kind", "text", "time", "time_unix_ms"]);
    let times: Vec<u64> =
        list.iter().map(|event| event["time_unix_ms"].as_u64().expect("a number")).collect();
    assert!(times.is_sorted(), "oldest first: {events}");
    let since_1970 =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("now").as_millis();
    assert!(
        times.iter().all(|&time| since_1970.abs_diff(u128::from(time)) < 600_000),
        "by the clock: {events}"
    );
    let is_of = |kind: &str, word: &str| {
        let says = |event: &&Value| event["text"].as_str().is_some_and(|text| text.contains(word));
        list.iter().filter(says).any(|event| event["kind"] == kind)
    };
    assert!(is_of("volume", "volume a"), "{events}");
    assert!(is_of("drive", "drive1.img"), "{events}");
    let text = sandbox.ok("pool events tank --last 2");
    assert_eq!(text.text().lines().count(), 3, "a heading and two: {}", text.text());
    assert!(text.text().starts_with("TIME "), "{}", text.text());
}

/// True if a process has locked the drive; checked without trying to lock it.
fn is_locked(sandbox: &Sandbox, name: &str) -> bool {
    let inode = std::fs::metadata(sandbox.path(name)).expect("a drive").ino();
    let locks = std::fs::read_to_string("/proc/locks").expect("the kernel's list");
    locks.lines().any(|line| line.contains(&format!(":{inode} ")))
}

#[test]
fn iostat_shows_the_drives_of_a_running_process() {
    let (sandbox, _) = with_volume(3, 9);
    let idle = sandbox.json("pool iostat tank");
    assert_eq!(idle["running"], false);
    assert_eq!(idle["intervals"][0]["drives"].as_array().map(Vec::len), Some(3));
    assert!(sandbox.ok("pool iostat tank").text().contains("no process has pool tank open"));
    assert!(sandbox.run("pool iostat tank 0").expect_code(2).err.contains("is not an interval"));
    assert!(sandbox.run("pool iostat tank 1 0").expect_code(2).err.contains("1"));

    // A rebuild onto a drive slow enough to be observed on a busy host.
    sandbox.ok("drive make @e --count 1 --size 32MiB --pace 500KB/s");
    lose(&sandbox, "d/drive1.img");
    sandbox.ok("pool replace tank @d/drive1.img @e/drive0.img");
    let mut child = sandbox.command("pool wait tank rebuild --quiet").spawn().expect("started");
    // Started earlier, `iostat` would find no process, and open the pool itself for a moment.
    while !is_locked(&sandbox, "d/drive0.img") {
        assert!(child.try_wait().expect("a child").is_none(), "it waits");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let mut busy = Value::Null;
    while child.try_wait().expect("a child").is_none() {
        let answer = sandbox.run("pool iostat tank 1 1 --json");
        if answer.code != 0 {
            // The process has the pool and reports no load yet: opening also writes to that drive.
            continue;
        }
        let shown = answer.json();
        let drives = shown["intervals"][0]["drives"].as_array().cloned().unwrap_or_default();
        // All its writes may have been submitted before the interval began.
        let writes = |drive: &&Value| {
            drive["write_mb_per_s"].as_f64().is_some_and(|rate| rate > 0.05)
                || drive["queued"].as_u64().is_some_and(|requests| requests > 0)
        };
        if let Some(drive) = drives.iter().find(writes) {
            busy = drive.clone();
            break;
        }
    }
    assert!(child.try_wait().expect("a child").is_none(), "it is still at work");
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert_eq!(busy["path"], sandbox.text("e/drive0.img"), "the drive that is written: {busy}");
    for key in
        ["id", "role", "state", "requests", "requests_per_s", "read_mb_per_s", "busy_percent", "queued"]
    {
        assert!(busy.get(key).is_some(), "{key} is missing");
    }
}

#[test]
fn a_returning_drive_does_not_become_two_members() {
    for forced in [false, true] {
        let sandbox = Sandbox::new();
        sandbox.pool(5);
        sandbox.ok("volume create tank/a --layout raid6 --size 24MiB --checksums off");
        let mut data = unique_bytes(LENGTH, 11);
        sandbox.write("tank/a", 4097, &data);
        let aside = |name: &str| (sandbox.path(&format!("d/{name}.img")), sandbox.path(name));
        for name in ["drive3", "drive4"] {
            let (place, aside) = aside(name);
            std::fs::rename(place, aside).expect("moved");
        }
        let new = unique_bytes(1_000_000, 12);
        sandbox.write("tank/a", 4097, &new);
        data[..new.len()].copy_from_slice(&new);
        let (place, aside) = aside("drive4");
        std::fs::rename(aside, place).expect("moved");
        let words = "pool replace tank @d/drive3.img @d/drive4.img --wait";
        if forced {
            sandbox.run(&format!("{words} --force"));
            assert_eq!(status(&sandbox)["state"], "degraded", "it stands in for one of them");
        } else {
            let refused = sandbox.fails(words);
            assert!(refused.contains("drive4.img is a drive of this pool already"), "{refused}");
            assert!(refused.contains("hint: `pool online`"), "{refused}");
            let refused = sandbox.fails("pool add tank @d/drive4.img");
            assert!(refused.contains("hint: `pool online`"), "{refused}");
            sandbox.ok("pool online tank @d/drive4.img --wait");
        }
        lose(&sandbox, "d/drive0.img");
        assert!(holds(&sandbox, &data));
    }
}

#[test]
fn older_copies_of_drives_are_excluded_or_forced() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid5 --size 24MiB --checksums off");
    sandbox.write("tank/a", 4097, &unique_bytes(LENGTH, 13));
    let copy = |from: &str, to: &str| std::fs::copy(sandbox.path(from), sandbox.path(to)).expect("copied");
    for index in [1, 2] {
        copy(&format!("d/drive{index}.img"), &format!("older{index}"));
    }
    let data = unique_bytes(LENGTH, 14);
    sandbox.write("tank/a", 4097, &data);
    copy("d/drive2.img", "newer2");
    copy("older1", "d/drive1.img");
    let now = status(&sandbox);
    assert_eq!(drive(&now, &sandbox.text("d/drive1.img")).expect("there")["state"], "stale", "{now}");
    assert!(holds(&sandbox, &data));

    copy("older2", "d/drive2.img");
    let refused = sandbox.fails("volume read tank/a --length 4096");
    assert!(refused.contains("were put back from an older copy: the pool is at generation"), "{refused}");
    assert!(refused.contains("hint: ") && refused.contains("`pool import --force`"), "{refused}");
    assert!(sandbox.fails("pool import --dir @d tank").contains("older copy"));
    copy("newer2", "d/drive2.img");
    assert!(holds(&sandbox, &data), "put back it is as if nothing had happened");

    copy("older2", "d/drive2.img");
    sandbox.ok("pool import --dir @d tank --force");
    sandbox.ok("pool status");
    sandbox.read("tank/a", 4097, LENGTH);
    copy("older1", "d/drive1.img");
    assert_eq!(drive(&status(&sandbox), &sandbox.text("d/drive1.img")).expect("there")["state"], "stale");
    sandbox.ok("pool replace tank @d/drive1.img @d/drive1.img --wait");
    sandbox.ok("pool status");
}
