//! Lists for scripts, settings that can be read, and the order of events.

use crate::kit::Sandbox;
use crate::kit::daemon::Daemon;

#[test]
fn lists_have_a_form_for_scripts() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("volume create tank/a --layout raid1 --size 4MiB");
    sandbox.ok("volume create tank/b --layout raid0 --size 4MiB");
    let check = || {
        let lines =
            |words: &str| -> Vec<String> { sandbox.ok(words).text().lines().map(str::to_owned).collect() };
        assert_eq!(lines("volume list -H -o state,volume"), ["online\ttank/a", "online\ttank/b"]);
        let id = sandbox.json("pool list")["pools"][0]["id"].as_str().expect("an ID").to_owned();
        assert_eq!(lines("pool list --no-header --columns ID"), [id]);
        let drives = lines("drive list -H -o drive,state,serial tank");
        let expected =
            [0, 1].map(|drive| format!("{}\tonline\t-", sandbox.text(&format!("d/drive{drive}.img"))));
        assert_eq!(drives, expected);
        assert_eq!(lines("pool events tank -o kind --last 1"), ["KIND", "volume"]);
        assert_eq!(lines("volume list -o can-lose,volume")[0], "CAN LOSE  VOLUME");
        let refused = sandbox.run("volume list -o size").expect_code(2).err;
        assert!(refused.contains("there is no column `size`") && refused.contains("can-lose"), "{refused}");
    };
    check();
    let daemon = Daemon::start(&sandbox, "");
    check();
    daemon.end();
}

#[test]
fn lists_keep_to_the_width_of_the_terminal_only() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    let shown = |columns: Option<&str>| {
        let mut command = sandbox.command("drive list tank");
        if let Some(columns) = columns {
            command.env("COLUMNS", columns);
        }
        String::from_utf8(command.output().expect("it runs").stdout).expect("text")
    };
    assert_eq!(shown(None).lines().count(), 3, "a pipe gets one record a line");
    let narrow = shown(Some("60"));
    assert!(narrow.lines().count() > 3, "{narrow}");
}

#[test]
fn settings_can_be_read_as_they_are_set() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("pool set tank rebuild-priority=high patrol-rate=20MB/s scrub=14d");
    let check = || {
        let value = |key: &str| sandbox.ok(&format!("pool get tank {key}")).text().trim_end().to_owned();
        assert_eq!(
            [value("rebuild-priority"), value("patrol-rate"), value("scrub")],
            ["high", "20MB", "14d"]
        );
        let all = sandbox.ok("pool get tank -H");
        let all: Vec<String> = all.text().lines().map(|line| line.replacen('\t', "=", 1)).collect();
        assert!(all.len() >= 6 && all.contains(&"space-warning=80".to_owned()), "{all:?}");
        // `set` takes the output of `get`.
        sandbox.ok(&format!("pool set tank {}", all.join(" ")));
        assert_eq!(sandbox.json("pool get tank scrub")["settings"][0]["value"], "14d");
        let refused = sandbox.run("pool get tank colour").expect_code(2).err;
        assert!(refused.contains("unknown setting `colour`") && refused.contains("scrub"), "{refused}");
    };
    check();
    let shown = sandbox.ok("pool status tank");
    assert!(
        shown.text().contains("settings: scrub=14d patrol-rate=20MB rebuild-priority=high"),
        "{}",
        shown.text()
    );
    let daemon = Daemon::start(&sandbox, "");
    check();
    daemon.end();
}

#[test]
fn events_are_in_the_order_of_time() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid5 --columns 3 --size 8MiB");
    sandbox.write("tank/a", 0, &crate::kit::unique_bytes(4 << 20, 3));
    let drive = sandbox.text("d/drive0.img");
    sandbox.ok(&format!("pool retire tank {drive} --wait"));
    sandbox.ok("pool scrub tank");
    let events = sandbox.json("pool events tank");
    let times: Vec<u64> = events["events"]
        .as_array()
        .expect("events")
        .iter()
        .map(|event| event["time_unix_ms"].as_u64().expect("a time"))
        .collect();
    assert!(times.is_sorted() && times.len() > 5, "{events}");
}

#[test]
fn a_drive_of_a_served_pool_is_named_with_its_pool() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("drive make @e --count 1 --size 32MiB");
    sandbox.ok("pool create other @e/drive0.img");
    let daemon = Daemon::start(&sandbox, "");
    for words in [
        "pool create mine @d/drive0.img",
        "pool create mine @d/drive0.img --force",
        "pool add other @d/drive0.img",
    ] {
        let said = sandbox.fails(words);
        assert!(
            said.contains("drive0.img is a drive of pool `tank`") && said.contains("hint: "),
            "{words}: {said}"
        );
    }
    daemon.end();
}
