//! Room by command: drives too small for a place, drives that became larger, drives that hold
//! something else, and the names by which drives go. No state of a pool is a dead end.

use crate::kit::{Sandbox, unique_bytes};
use serde_json::Value;

/// A pool of four drives, filled by a RAID 5 volume with some data.
fn full() -> (Sandbox, Vec<u8>) {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid5");
    let data = unique_bytes(1 << 20, 5);
    sandbox.write("tank/a", 0, &data);
    (sandbox, data)
}

fn status(sandbox: &Sandbox) -> Value {
    sandbox.run("pool status tank --json").json()["pools"][0].clone()
}

fn lose(sandbox: &Sandbox, name: &str) {
    std::fs::remove_file(sandbox.path(name)).expect("a drive");
}

/// Changes the length of a drive's file.
fn lengthen(sandbox: &Sandbox, name: &str, mib: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(sandbox.path(name)).expect("a drive");
    file.set_len(mib << 20).expect("room");
}

#[test]
fn too_small_replacement_of_a_lost_drive_is_refused() {
    let (sandbox, data) = full();
    sandbox.ok("drive make @s --count 1 --size 24MiB");
    lose(&sandbox, "d/drive1.img");
    let refused = sandbox.fails("pool replace tank @d/drive1.img @s/drive0.img --yes");
    assert!(refused.contains("cannot replace") && !refused.contains("redundancy left"), "{refused}");
    sandbox.ok("pool remove tank @d/drive1.img");
    let now = status(&sandbox);
    let (condition, action) = (now["condition"].as_str(), now["action"].as_str());
    let condition = condition.expect("text");
    assert!(condition.contains("column") && condition.contains("drive1.img"), "{condition}");
    assert_eq!(action, Some("stripewise pool add tank NEW-DRIVE"));
    sandbox.ok("drive make @e --count 1 --size 32MiB");
    sandbox.ok("pool add tank @e/drive0.img");
    sandbox.ok("pool wait tank rebuild");
    assert_eq!(status(&sandbox)["state"], "online");
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
}

#[test]
fn smaller_drives_are_confirmed_or_refused() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    sandbox.ok("drive make @s --count 2 --size 16MiB");
    let refused = sandbox.run("pool replace tank @d/drive1.img @s/drive0.img").expect_code(2).err;
    assert!(refused.contains("pool tank shrinks from") && refused.contains("--yes"), "{refused}");
    let refused = sandbox.fails("pool add tank @s/drive1.img --as spare");
    assert!(refused.contains("could replace none of them"), "{refused}");
    sandbox.ok("pool replace tank @d/drive1.img @s/drive0.img --yes --wait");
    let note = sandbox.ok("pool add tank @s/drive1.img --as spare").err;
    assert!(note.contains("it can replace 1 of 3 drives in full"), "{note}");
}

#[test]
fn drives_that_became_larger_are_used_in_full() {
    let (sandbox, data) = full();
    let before = status(&sandbox)["capacity_bytes"].as_u64().expect("bytes");
    (0..4).for_each(|drive| lengthen(&sandbox, &format!("d/drive{drive}.img"), 64));
    let shown = sandbox.ok("pool status tank");
    let text = shown.one_line();
    assert!(text.contains("has grown from 32 MiB to 64 MiB; `stripewise pool grow tank`"), "{text}");
    let asked = sandbox.run("pool grow tank --wait").expect_code(2).err;
    assert!(asked.contains("is filled again") && asked.contains("no redundancy left"), "{asked}");
    sandbox.ok("pool grow tank --yes --wait");
    let now = status(&sandbox);
    assert_eq!(now["state"], "online");
    assert!(now["capacity_bytes"].as_u64().expect("bytes") > before * 2, "{now}");
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    assert!(sandbox.fails("pool grow tank").contains("no drive of pool `tank` has become larger"));
}

#[test]
fn columns_that_leave_space_unused_are_noted() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @large --count 3 --size 64MiB");
    sandbox.ok("drive make @small --count 1 --size 16MiB");
    sandbox.ok("pool create tank @large/drive0.img @large/drive1.img @large/drive2.img @small/drive0.img");
    let noted = sandbox.ok("volume create tank/a --layout raid5 --columns 4").err;
    assert!(noted.contains("4 columns hold") && noted.contains("--columns 3 holds"), "{noted}");
    sandbox.ok("volume delete tank/a --yes");
    let chosen = sandbox.ok("volume create tank/a --layout raid5").err;
    assert!(chosen.contains("3 columns hold"), "{chosen}");
    sandbox.ok("drive make @more --count 1 --size 64MiB");
    let added = sandbox.ok("pool add tank @more/drive0.img").err;
    assert!(!added.contains("volume convert"), "it never took all drives: {added}");
}

#[test]
fn cleared_drive_can_be_used_by_a_pool() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    assert!(sandbox.fails("drive clear @d/drive0.img --yes").contains("is a drive of pool `tank`"));
    sandbox.ok("pool export tank");
    let asked = sandbox.run("drive clear @d/drive0.img").expect_code(2).err;
    assert!(asked.contains("a drive of pool `tank`") && asked.contains("--yes"), "{asked}");
    let cleared = sandbox.ok("drive clear @d/drive0.img --yes");
    assert!(
        cleared.text().contains("drive0.img is empty; it held a drive of pool `tank`"),
        "{}",
        cleared.text()
    );
    // A file whose first half is empty.
    let mut other = vec![0; 16 << 20];
    other[12 << 20..].fill(7);
    std::fs::write(sandbox.path("other.img"), other).expect("written");
    let refused = sandbox.fails("pool create new @d/drive0.img @other.img");
    assert!(refused.contains("other.img holds data of an unknown kind"), "{refused}");
    sandbox.ok("drive clear @other.img --yes");
    sandbox.ok("pool create new @d/drive0.img @other.img");
}

#[test]
fn sizes_are_shares_and_differences_too() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    let size = || sandbox.json("volume show tank/a")["volumes"][0]["capacity_bytes"].as_u64().expect("bytes");
    sandbox.ok("volume create tank/a --layout raid5 --size 50%");
    let half = size();
    sandbox.ok("volume resize tank/a +4MiB");
    assert_eq!(size(), half + (4 << 20));
    sandbox.ok("volume resize tank/a -4MiB");
    assert_eq!(size(), half);
    sandbox.ok("volume resize tank/a max");
    assert!(size() > half * 3 / 2, "{} and {half}", size());
    let refused = sandbox.fails("volume create tank/b --layout raid5 --size 1EiB --thin");
    assert!(refused.contains("region map") && refused.contains("largest thin volume"), "{refused}");
}

#[test]
fn other_host_of_a_pool_is_named_in_its_status() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    let mut command = sandbox.command("pool import --dir @d tank --force");
    command.env("STRIPEWISE_HOST", "north").env("STRIPEWISE_HOME", sandbox.path("north"));
    assert!(command.status().expect("it runs").success());
    let now = status(&sandbox);
    assert_eq!(now["state"], "unknown");
    assert!(now["condition"].as_str().expect("text").starts_with("in use by host north"), "{now}");
}

#[test]
fn printed_import_command_works_as_printed() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    sandbox.ok("pool export tank");
    let listed = sandbox.ok("pool import --dir d");
    let command = listed.text().lines().find_map(|line| line.trim().strip_prefix("import: stripewise "));
    sandbox.ok(command.expect("a command"));
    sandbox.ok("pool status tank");
}

#[test]
fn copy_of_all_drives_becomes_a_pool_of_its_own() {
    let (sandbox, data) = full();
    std::fs::create_dir(sandbox.path("copy")).expect("a folder");
    for drive in 0..4 {
        let name = format!("drive{drive}.img");
        std::fs::copy(sandbox.path(&format!("d/{name}")), sandbox.path(&format!("copy/{name}")))
            .expect("copied");
    }
    let refused = sandbox.fails("pool import --dir @copy tank");
    assert!(refused.contains("is a copy of that") && refused.contains("--new-identity"), "{refused}");
    let refused = sandbox.fails("pool import --dir @d tank --new-identity --as other");
    assert!(refused.contains("and no copy"), "{refused}");
    sandbox.ok("pool import --dir @copy tank --new-identity --as other");
    sandbox.write("other/a", 0, b"other");
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    assert_eq!(sandbox.read("other/a", 0, 5), b"other");
}
