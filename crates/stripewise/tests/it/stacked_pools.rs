//! Pools on volumes of other pools: created, used, scrubbed and imported; the volumes below them
//! cannot be removed.

use crate::kit::{Sandbox, unique_bytes};
use serde_json::Value;

const LENGTH: usize = 20 << 20;

/// Creates two pools `left` and `right` of three drives each with RAID 5 volumes, and a pool
/// `outer` on these, with data on its volume.
fn stacked(layout: &str) -> (Sandbox, Vec<u8>) {
    let sandbox = Sandbox::new();
    for side in ["left", "right"] {
        sandbox.ok(&format!("drive make @{side} --count 3 --size 40MiB"));
        sandbox.ok(&format!("pool create {side} @{side}/drive0.img @{side}/drive1.img @{side}/drive2.img"));
        sandbox.ok(&format!("volume create {side}/v --layout raid5 --size 48MiB"));
    }
    sandbox.ok("pool create outer left/v right/v");
    sandbox.ok(&format!("volume create outer/data --layout {layout} --size 32MiB"));
    let data = unique_bytes(LENGTH, 8);
    sandbox.write("outer/data", 4096, &data);
    (sandbox, data)
}

fn state(sandbox: &Sandbox, pool: &str) -> Value {
    sandbox.run(&format!("pool status {pool} --json")).json()["pools"][0].clone()
}

#[test]
fn a_pool_over_arrays_survives_a_loss_in_each() {
    let (sandbox, data) = stacked("raid0");
    assert!(sandbox.read("outer/data", 4096, LENGTH) == data);
    let outer = state(&sandbox, "outer");
    assert_eq!(outer["state"], "online");
    assert_eq!(outer["drives"][0]["path"], "left/v");
    let shown = sandbox.json("drive show left/v");
    assert_eq!(
        (&shown["drives"][0]["kind"], &shown["drives"][0]["belongs"]),
        (&"volume".into(), &true.into())
    );
    // Each pool below loses a drive: its array handles the loss, the outer pool is not affected.
    for side in ["left", "right"] {
        std::fs::remove_file(sandbox.path(&format!("{side}/drive1.img"))).expect("there");
    }
    assert!(sandbox.read("outer/data", 4096, LENGTH) == data);
    assert_eq!(state(&sandbox, "outer")["state"], "online");
    assert_eq!(state(&sandbox, "left")["state"], "degraded");
    sandbox.ok("drive make @new --count 1 --size 40MiB");
    sandbox.ok("pool replace left @left/drive1.img @new/drive0.img");
    // A process that runs the jobs of the outer pool also runs those of the pools below.
    let more = unique_bytes(4 << 20, 9);
    sandbox.write("outer/data", 4096, &more);
    sandbox.ok("pool wait left rebuild");
    assert_eq!(state(&sandbox, "left")["state"], "online");
    let scrub = sandbox.json("pool scrub outer --wait");
    assert_eq!(scrub["scrubs"][0]["unreadable_strips"], 0);
    let whole = sandbox.read("outer/data", 4096, LENGTH);
    assert!(whole[..more.len()] == more && whole[more.len()..] == data[more.len()..]);
}

#[test]
fn a_pool_below_that_is_missing_is_a_missing_drive() {
    let (sandbox, data) = stacked("raid1");
    std::fs::rename(sandbox.path("left"), sandbox.path("elsewhere")).expect("moved");
    let outer = sandbox.run("pool status outer --json").expect_code(3).json();
    assert_eq!(outer["pools"][0]["drives"][0]["state"], "missing");
    assert!(sandbox.read("outer/data", 4096, LENGTH) == data);
    let more = unique_bytes(1 << 20, 3);
    sandbox.write("outer/data", 4096, &more);
    // When it returns, it is resynchronised.
    std::fs::rename(sandbox.path("elsewhere"), sandbox.path("left")).expect("moved");
    sandbox.ok("pool online outer left/v --wait");
    assert_eq!(state(&sandbox, "outer")["state"], "online");
    std::fs::rename(sandbox.path("right"), sandbox.path("elsewhere")).expect("moved");
    let whole = sandbox.read("outer/data", 4096, LENGTH);
    assert!(whole[..more.len()] == more && whole[more.len()..] == data[more.len()..], "left holds all of it");
}

#[test]
fn volumes_in_use_by_a_pool_cannot_be_changed() {
    let (sandbox, data) = stacked("raid0");
    for command in [
        "volume delete left/v --yes",
        "volume resize left/v 60MiB",
        "volume write left/v",
        "pool destroy left --yes",
        "pool export left",
        "pool create other left/v",
    ] {
        let refused = sandbox.fails(command);
        assert!(refused.contains("volume `left/v` is a drive of pool `outer`"), "{command}: {refused}");
        assert!(refused.contains("hint:") && refused.contains("pool destroy outer"), "{command}: {refused}");
    }
    // Cycles: a pool on its own volume, directly and through another pool.
    for command in ["pool add outer outer/data", "pool add left outer/data"] {
        let refused = sandbox.fails(command);
        assert!(
            refused.contains("is stored on that pool") && refused.contains("hint:"),
            "{command}: {refused}"
        );
    }
    assert!(sandbox.read("outer/data", 4096, LENGTH) == data);
    // From the top down, all can be destroyed.
    sandbox.ok("pool destroy outer --yes");
    sandbox.ok("volume delete left/v --yes");
    sandbox.ok("pool destroy left --yes");
}

#[test]
fn stacked_members_are_replaced_without_overwriting() {
    let (sandbox, data) = stacked("raid1");
    sandbox.ok("volume create right/w --layout raid5 --size 8MiB");
    sandbox.write("right/w", 0, b"private data, in a block of its own");
    let refused = sandbox.fails("pool add outer right/w");
    assert!(refused.contains("right/w holds data of an unknown kind"), "{refused}");
    sandbox.ok("volume delete right/w --yes");
    sandbox.ok("drive make @third --count 2 --size 64MiB");
    sandbox.ok("pool create third @third/drive0.img @third/drive1.img");
    sandbox.ok("volume create third/v --layout raid1 --size 48MiB");
    sandbox.ok("pool replace outer left/v third/v --wait");
    assert_eq!(state(&sandbox, "outer")["state"], "online");
    sandbox.ok("pool export outer");
    sandbox.ok("pool export right");
    sandbox.ok("pool export third");
    assert!(sandbox.read_fails("outer/data"));
    // All pools are found again, in any order of stacking; a replaced volume is not mistaken for
    // its successor. A pool on a volume may have been put there by a client of the volume: it must
    // be named.
    let imported = sandbox.ok("pool import --dir @right --dir @third --dir @left --all").err;
    assert!(imported.contains("lies on a volume of another pool"), "{imported}");
    assert!(sandbox.read_fails("outer/data"));
    sandbox.ok("pool import outer --dir @third");
    assert!(sandbox.read("outer/data", 4096, LENGTH) == data);
    sandbox.ok("pool export outer");
    sandbox.ok("pool import outer --dir @right");
    assert!(sandbox.read("outer/data", 4096, LENGTH) == data, "also when those below are known already");
}

#[test]
fn pools_stack_three_deep_over_one_base() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 3 --size 128MiB");
    sandbox.ok("pool create base @d/drive0.img @d/drive1.img @d/drive2.img");
    sandbox.ok("volume create base/a --layout raid5 --size 60MiB");
    sandbox.ok("volume create base/b --layout raid5 --size 60MiB");
    sandbox.ok("pool create middle base/a");
    sandbox.ok("volume create middle/c --layout single --size 32MiB");
    sandbox.ok("pool create top middle/c base/b");
    sandbox.ok("volume create top/data --layout raid1 --size 16MiB");
    let data = unique_bytes(8 << 20, 4);
    sandbox.write("top/data", 0, &data);
    assert!(sandbox.read("top/data", 0, 8 << 20) == data);
    let refused = sandbox.fails("pool add base top/data");
    assert!(refused.contains("is stored on that pool"), "{refused}");
}
