//! Log volumes, as the command line makes, shows and refuses them.

use crate::kit::{Sandbox, unique_bytes};

const LENGTH: usize = 3 << 20;

#[test]
fn a_log_volume_lives_from_creation_to_deletion() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    let created = sandbox.json("volume create tank/log --layout raid5 --size 8MiB --log --reserve 20");
    let volume = &created["volumes"][0];
    assert_eq!((&volume["log"]["reserve_percent"], &volume["state"]), (&20.into(), &"online".into()));
    assert_eq!((&volume["capacity_bytes"], &volume["journal_area_bytes"]), (&(8 << 20).into(), &0.into()));
    // Neither begins nor ends with a block.
    let data = unique_bytes(LENGTH, 5);
    sandbox.write("tank/log", 12_345, &data);
    sandbox.write("tank/log", 1_000_001, &data[..100]);
    let mut expected = data.clone();
    expected[1_000_001 - 12_345..][..100].copy_from_slice(&data[..100]);
    assert!(sandbox.read("tank/log", 12_345, LENGTH) == expected);
    assert!(sandbox.read("tank/log", 0, 12_345).iter().all(|byte| *byte == 0));
    let status = sandbox.ok("pool status tank");
    assert!(status.text().contains("log: ") && status.text().contains("% live"), "{}", status.text());
    assert!(sandbox.ok("volume list").text().contains("raid5 log"));
    let shown = sandbox.ok("volume show tank/log");
    assert!(shown.text().contains("20 % reserve"), "{}", shown.text());
    for (command, reason) in [
        ("volume resize tank/log 16MiB", "cannot be resized"),
        ("volume convert tank/log --layout raid6", "cannot be converted"),
        ("volume pin tank/log slow", "cannot be pinned"),
        ("pool retire tank @d/drive1.img", "cannot be moved to another drive"),
    ] {
        let refused = sandbox.fails(command);
        assert!(refused.contains(reason) && refused.contains("hint:"), "{command}: {refused}");
    }
    sandbox.ok("pool scrub tank --wait");
    sandbox.ok("volume delete tank/log --yes");
    assert_eq!(sandbox.json("pool status tank")["pools"][0]["allocated_bytes"], 0);
}

#[test]
fn wrong_wishes_for_a_log_volume_are_refused() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    for reserve in [0, 4, 51, 90] {
        let refused =
            sandbox.fails(&format!("volume create tank/a --layout raid5 --log --reserve {reserve}"));
        assert!(refused.contains("5 to 50 percent"), "{refused}");
    }
    for words in ["--reserve 20", "--log --thin --size 8MiB", "--log --write-back", "--log --pin fast"] {
        sandbox.run(&format!("volume create tank/a --layout raid5 {words}")).expect_code(2);
    }
    let refused = sandbox.fails("volume create tank/a --layout raid5 --size 10GiB --log");
    assert!(refused.contains("there is room for"), "{refused}");
    assert_eq!(sandbox.json("volume list")["volumes"], serde_json::json!([]));
}
