//! Volumes become others: raid10, raid5, raid6 and back while they keep what they hold; what cannot
//! be is refused with the numbers.

use crate::kit::{Sandbox, unique_bytes};

#[test]
fn a_converted_volume_keeps_its_data() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid10 --size 10MiB");
    let data = unique_bytes(5_000_001, 3);
    sandbox.write("tank/a", 4097, &data);

    let begun = sandbox.ok("volume convert tank/a --layout raid5");
    assert_eq!(
        begun.text(),
        "converting volume tank/a from raid10 over 4 drives to raid5 over 4\nqueued, and not running: \
         no daemon serves the pool; `stripewise pool wait tank convert` does it now; \
         `stripewise volume convert tank/a --cancel` cancels it\n"
    );
    let status = sandbox.json("pool status tank");
    let pool = &status["pools"][0];
    assert_eq!(
        (&pool["activity"][0]["kind"], &pool["action"]),
        (&"convert".into(), &"stripewise pool wait tank convert".into())
    );
    assert!(pool["activity"][0]["percent"].as_f64().is_some_and(|percent| percent == 0.0));
    let shown = sandbox.json("volume show tank/a");
    let conversion = &shown["volumes"][0]["conversion"];
    assert_eq!((&conversion["from_layout"], &conversion["next_offset_bytes"]), (&"raid10".into(), &0.into()));
    assert!(
        sandbox.ok("volume show tank/a").text().contains("converting: from raid10 over 4 drives; 0.0 % done")
    );
    assert!(sandbox.read("tank/a", 4097, data.len()) == data, "before it was worked on");
    let refused = sandbox.fails("volume resize tank/a 4MiB");
    assert!(
        refused.contains("is being converted")
            && refused.contains("hint: `stripewise pool wait tank convert`"),
        "{refused}"
    );
    let refused = sandbox.fails("volume convert tank/a --layout raid6");
    assert!(refused.contains("is being converted"), "{refused}");

    let done = sandbox.ok("pool wait tank convert");
    assert!(done.text().starts_with("the convert of pool tank is complete"), "{}", done.text());
    let volume = &sandbox.json("volume show tank/a")["volumes"][0];
    assert_eq!((&volume["layout"], volume["conversion"].is_null()), (&"raid5".into(), true));
    assert!(sandbox.read("tank/a", 4097, data.len()) == data, "as raid5");
    assert_eq!(sandbox.ok("pool wait tank convert").text(), "pool tank: no convert is pending\n");

    let converted = sandbox.ok("volume convert tank/a --layout raid6 --columns 4 --interleave 16KiB --wait");
    assert!(converted.text().ends_with("volume tank/a is now raid6 over 4 drives\n"), "{}", converted.text());
    assert!(sandbox.read("tank/a", 4097, data.len()) == data, "as raid6");
    let events = sandbox.ok("pool events tank");
    assert!(events.text().contains("volume a was converted from raid5 over 4 drives, interleave 64 KiB to raid6 over 4 drives, interleave 16 KiB"), "{}", events.text());
    sandbox.ok("pool scrub tank --wait");
    assert_eq!(sandbox.ok("pool wait tank destage").text(), "pool tank: no destage is pending\n");
}

#[test]
fn impossible_conversions_are_refused_with_numbers() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid5");
    let before = sandbox.json("pool status tank");
    for (words, parts) in [
        (
            "--layout raid5",
            vec!["is raid5 over 4 drives, interleave 64 KiB already", "hint: name another layout"],
        ),
        ("--layout raid10", vec!["not enough space", "slabs of", "are free", "hint: it would take"]),
        ("--layout raid6 --columns 5", vec!["5", "4 ", "hint:"]),
    ] {
        let refused = sandbox.fails(&format!("volume convert tank/a {words}"));
        for part in parts {
            assert!(refused.contains(part), "{words}: {refused}");
        }
    }
    assert_eq!(sandbox.run("volume convert tank/a").code, 2, "a layout is needed");
    assert_eq!(sandbox.run("volume convert tank/a --layout raid9").code, 2);
    let refused = sandbox.run("volume convert tank/a --layout raid5 --interleave 5KiB").expect_code(2).err;
    assert!(
        refused.contains("an interleave of 5120 bytes is not a power of two") && refused.contains("hint:"),
        "{refused}"
    );
    assert!(sandbox.fails("volume convert tank/b --layout raid6").contains("no volume b"));
    assert_eq!(
        sandbox.json("pool status tank")["pools"][0]["allocated_bytes"],
        before["pools"][0]["allocated_bytes"]
    );
}

#[test]
fn lower_redundancy_needs_yes_and_can_be_cancelled() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid6 --size 10MiB");
    let data = unique_bytes(5_000_001, 5);
    sandbox.write("tank/a", 0, &data);
    let refused = sandbox.run("volume convert tank/a --layout raid5").expect_code(2).err;
    assert!(
        refused.contains("survives the loss of 2 drives as raid6 over 4 drives")
            && refused.contains("as raid5 over 4 drives it survives the loss of 1 drive")
            && refused.contains("add --yes"),
        "{refused}"
    );
    assert!(sandbox.json("volume show tank/a")["volumes"][0]["conversion"].is_null(), "nothing was begun");
    assert!(sandbox.fails("volume convert tank/a --cancel").contains("is not being converted"));
    sandbox.ok("volume convert tank/a --layout raid5 --yes");
    let back = sandbox.ok("volume convert tank/a --cancel");
    assert!(back.text().contains("volume tank/a is now raid6 over 4 drives"), "{}", back.text());
    assert!(sandbox.json("volume show tank/a")["volumes"][0]["conversion"].is_null());
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    sandbox.ok("volume convert tank/a --layout raid5 --yes --wait");
    assert_eq!(sandbox.json("volume show tank/a")["volumes"][0]["layout"], "raid5");
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
}

#[test]
fn mirrors_have_two_copies_and_single_one_by_default() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    for (layout, columns) in [("raid1", 2), ("mirror", 2), ("single", 1)] {
        let created = sandbox.json(&format!("volume create tank/{layout} --layout {layout} --size 2MiB"));
        assert_eq!(created["volumes"][0]["columns"], columns, "{layout}");
    }
}
