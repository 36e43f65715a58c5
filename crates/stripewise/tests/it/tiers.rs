//! Volumes between fast and data drives, as the command line shows and sets it.

use crate::kit::{Sandbox, unique_bytes};
use serde_json::Value;

const LENGTH: usize = 12 << 20;

/// A pool of three drives and three fast ones, and a volume with something in it.
fn with_volume() -> (Sandbox, Vec<u8>) {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 3 --size 32MiB");
    sandbox.ok("drive make @f --count 3 --size 24MiB");
    let (drives, fast) =
        ("@d/drive0.img @d/drive1.img @d/drive2.img", "@f/drive0.img --fast @f/drive1.img --fast");
    sandbox.ok(&format!("pool create tank {drives} --fast {fast} @f/drive2.img"));
    sandbox.ok("volume create tank/a --layout raid5 --size 16MiB");
    let data = unique_bytes(LENGTH, 5);
    sandbox.write("tank/a", 0, &data);
    (sandbox, data)
}

fn tiers(sandbox: &Sandbox) -> Value {
    sandbox.json("volume show tank/a")["volumes"][0]["tiers"].clone()
}

#[test]
fn a_pinned_volume_moves_to_its_drives_and_back() {
    let (sandbox, data) = with_volume();
    assert_eq!((&tiers(&sandbox)["fast_rows"], &tiers(&sandbox)["data_rows"]), (&0.into(), &8.into()));
    let pinned = sandbox.ok("volume pin tank/a fast");
    assert!(pinned.text().contains("run `stripewise pool wait tank tier`"), "{}", pinned.text());
    assert_eq!(sandbox.json("pool wait tank tier")["worked"], true);
    let now = tiers(&sandbox);
    assert_eq!((&now["fast_rows"], &now["data_rows"], &now["mixed_rows"]), (&8.into(), &0.into(), &0.into()));
    assert_eq!(now["fast_bytes"], 24 << 20);
    let text = sandbox.ok("volume show tank/a");
    assert!(
        text.text().contains("8 of 8 rows on fast drives (24 MiB of 24 MiB); pinned to fast drives"),
        "{}",
        text.text()
    );
    assert!(sandbox.read("tank/a", 0, LENGTH) == data);
    let back = sandbox.ok("volume pin tank/a slow --wait");
    assert_eq!(back.text(), "volume tank/a pinned to data drives\n");
    assert_eq!(tiers(&sandbox)["data_rows"], 8);
    assert!(sandbox.read("tank/a", 0, LENGTH) == data);
    sandbox.ok("volume pin tank/a none");
}

#[test]
fn pinning_beyond_the_fast_drives_is_refused() {
    let (sandbox, _) = with_volume();
    let refused = sandbox.fails("volume create tank/b --layout raid5 --size 60MiB --pin fast");
    assert!(
        refused.contains("needs 30 MiB free on each of 3 drives") && refused.contains("on the fast drives"),
        "{refused}"
    );
    let refused = sandbox.fails("volume create tank/b --layout raid6 --columns 4 --size 4MiB --pin fast");
    assert!(refused.contains("hint:"), "{refused}");
    sandbox.ok("volume create tank/b --layout raid5 --size 30MiB --pin fast");
    let refused = sandbox.fails("volume pin tank/a fast");
    assert!(refused.contains("needs 8 MiB free on each") && refused.contains("hint:"), "{refused}");
    sandbox.ok("drive make @g --count 3 --size 32MiB");
    sandbox.ok("pool create plain @g/drive0.img @g/drive1.img @g/drive2.img");
    let refused = sandbox.run("volume create plain/a --layout raid5 --size 4MiB --pin fast");
    assert_ne!(refused.code, 0);
    assert!(refused.err.contains("on fast drives, and the pool has 0 in service"), "{}", refused.err);
}

#[test]
fn the_tier_rate_is_set_and_shown() {
    let (sandbox, _) = with_volume();
    assert_eq!(sandbox.json("pool status")["pools"][0]["tier_bytes_per_s"], 100_000_000);
    let set = sandbox.ok("pool set tank tier-rate=20MB");
    assert!(set.text().contains("tier migration rate limit: 19.07 MiB per second"), "{}", set.text());
    assert_eq!(sandbox.json("pool status")["pools"][0]["tier_bytes_per_s"], 20_000_000);
    sandbox.ok("pool set tank tier-rate=off");
    assert_eq!(sandbox.json("pool status")["pools"][0]["tier_bytes_per_s"], Value::Null);
    for wrong in ["tier-rate=1000", "tier-rate=", "tier-rate=never"] {
        sandbox.run(&format!("pool set tank {wrong}")).expect_code(2);
    }
}
