//! Volumes that are cut into slices, as the command line makes, shows, converts and refuses them.

use crate::kit::{Sandbox, unique_bytes};

const LENGTH: usize = 6 << 20;

#[test]
fn slices_are_made_shown_resized_and_joined() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    let created = sandbox.json("volume create tank/a --layout raid5 --size 12MiB --slices 2");
    let volume = &created["volumes"][0];
    assert_eq!((&volume["slices"], &volume["slice_extent_bytes"]), (&2.into(), &(6 << 20).into()));
    // Neither begins nor ends with a block, and lies in both slices.
    let data = unique_bytes(LENGTH, 5);
    sandbox.write("tank/a", (5 << 20) + 77, &data);
    assert!(sandbox.read("tank/a", (5 << 20) + 77, LENGTH) == data);
    assert!(sandbox.ok("volume list").text().contains("raid5 in 2 slices"));
    let shown = sandbox.ok("volume show tank/a");
    assert!(shown.text().contains("2, extents of 6 MiB in turn"), "{}", shown.text());
    sandbox.ok("volume resize tank/a 18MiB");
    assert!(sandbox.read("tank/a", (5 << 20) + 77, LENGTH) == data);
    sandbox.ok("volume convert tank/a --slices 1 --wait");
    let joined = sandbox.json("volume show tank/a");
    assert_eq!(joined["volumes"][0]["slices"], 1);
    assert!(joined["volumes"][0]["slice_extent_bytes"].is_null());
    assert!(sandbox.read("tank/a", (5 << 20) + 77, LENGTH) == data);
    sandbox.ok("volume convert tank/a --layout raid6 --slices 2 --wait");
    assert_eq!(sandbox.json("volume show tank/a")["volumes"][0]["slices"], 2);
    assert!(sandbox.read("tank/a", (5 << 20) + 77, LENGTH) == data);
    sandbox.ok("volume delete tank/a --yes");
}

#[test]
fn wrong_numbers_of_slices_are_refused_with_a_hint() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    for slices in ["0", "9", "-1", "many"] {
        let words = format!("volume create tank/a --layout raid5 --size 24MiB --slices={slices}");
        sandbox.run(&words).expect_code(2);
    }
    let small = sandbox.fails("volume create tank/a --layout raid5 --size 10MiB --slices 2");
    assert!(small.contains("hint: give it 12 MiB or more, or fewer slices"), "{small}");
    let log = sandbox.fails("volume create tank/a --layout raid5 --size 24MiB --log --slices 2");
    assert!(log.contains("cannot be cut into slices"), "{log}");
    sandbox.run("volume convert tank/a").expect_code(2);
    sandbox.run("volume convert tank/a --slices 2 --columns 3").expect_code(2);
    sandbox.run("volume convert tank/a --slices 2 --cancel").expect_code(2);
    assert_eq!(sandbox.json("volume list")["volumes"], serde_json::json!([]));
}
