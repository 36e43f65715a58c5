//! `pool status` in every state of a pool. The command that it names is run as printed, and must
//! improve the state.

use crate::kit::{Sandbox, unique_bytes};

const LENGTH: usize = 300_000;

/// A state of a pool.
struct Case {
    what: &'static str,
    drives: usize,
    spare: bool,
    volume: &'static str,
    /// Event that leads to the state.
    happens: fn(&Sandbox),
    state: &'static str,
    condition: &'static str,
    /// Expected command; `ID` stands for the ID of drive 1.
    action: &'static str,
    /// Expected state after the command, and the pending jobs.
    after: &'static str,
}

fn lose(sandbox: &Sandbox, drive: usize) {
    std::fs::create_dir_all(sandbox.path("away")).expect("made");
    let away = sandbox.path(&format!("away/drive{drive}.img"));
    std::fs::rename(sandbox.drive_path(drive), away).expect("moved");
}

fn bring_back(sandbox: &Sandbox, drive: usize) {
    let away = sandbox.path(&format!("away/drive{drive}.img"));
    std::fs::rename(away, sandbox.drive_path(drive)).expect("moved");
}

const WIDE: &str = "--layout raid5";
const NARROW: &str = "--layout raid5 --columns 3";

const CASES: [Case; 11] = [
    Case {
        what: "nothing happened",
        drives: 4,
        spare: false,
        volume: WIDE,
        happens: |_| {},
        state: "online",
        condition: "all drives are there and all volumes have all their redundancy",
        action: "",
        after: "online",
    },
    Case {
        what: "a drive is lost, and nothing can take its place",
        drives: 4,
        spare: false,
        volume: WIDE,
        happens: |sandbox| lose(sandbox, 1),
        state: "degraded",
        condition: "drive1.img (missing)",
        action: "stripewise pool replace tank ID NEW-DRIVE",
        after: "online",
    },
    Case {
        what: "a drive is lost, and a spare waits",
        drives: 4,
        spare: true,
        volume: WIDE,
        happens: |sandbox| lose(sandbox, 1),
        state: "degraded",
        condition: "drive4.img takes over",
        action: "stripewise pool wait tank rebuild",
        after: "online",
    },
    Case {
        what: "a drive is lost, and the others have room",
        drives: 5,
        spare: false,
        volume: NARROW,
        happens: |sandbox| lose(sandbox, 1),
        state: "degraded",
        condition: "the other drives have room for what is lacking",
        action: "stripewise pool wait tank rebuild",
        after: "degraded",
    },
    Case {
        what: "what a drive held was rebuilt into free space",
        drives: 5,
        spare: false,
        volume: NARROW,
        happens: |sandbox| {
            lose(sandbox, 1);
            sandbox.ok("pool wait tank rebuild");
        },
        state: "degraded",
        condition: "all volumes are whole without",
        action: "stripewise pool remove tank ID",
        after: "online",
    },
    Case {
        what: "a drive was taken offline",
        drives: 4,
        spare: true,
        volume: WIDE,
        happens: |sandbox| {
            sandbox.ok("pool offline tank @d/drive1.img");
        },
        state: "degraded",
        condition: "drive1.img (offline)",
        action: "stripewise pool online tank ID",
        after: "online",
    },
    Case {
        what: "a drive was away while the pool was written, and is back",
        drives: 4,
        spare: false,
        volume: WIDE,
        happens: |sandbox| {
            lose(sandbox, 1);
            sandbox.write("tank/a", LENGTH as u64, b"while it was away");
            bring_back(sandbox, 1);
        },
        state: "degraded",
        condition: "drive1.img (behind)",
        action: "stripewise pool wait tank rebuild",
        after: "online",
    },
    Case {
        what: "a drive has the name of another",
        drives: 4,
        spare: false,
        volume: WIDE,
        happens: |sandbox| {
            lose(sandbox, 1);
            std::fs::rename(sandbox.drive_path(2), sandbox.drive_path(1)).expect("renamed");
            std::fs::rename(sandbox.path("away/drive1.img"), sandbox.drive_path(2)).expect("renamed");
        },
        state: "online",
        condition: "all drives are there",
        action: "",
        after: "online",
    },
    Case {
        what: "more drives are lost than the layout can spare",
        drives: 4,
        spare: false,
        volume: WIDE,
        happens: |sandbox| {
            lose(sandbox, 1);
            lose(sandbox, 2);
        },
        state: "failed",
        condition: "with these it could be read again",
        action: "stripewise pool import tank --dir DIR",
        after: "online",
    },
    Case {
        what: "a drive is being emptied",
        drives: 5,
        spare: false,
        volume: NARROW,
        happens: |sandbox| {
            sandbox.ok("pool retire tank @d/drive1.img");
        },
        state: "online",
        condition: "drive1.img is being emptied",
        action: "stripewise pool wait tank rebuild",
        after: "online",
    },
    Case {
        what: "a volume is being converted",
        drives: 4,
        spare: false,
        volume: WIDE,
        happens: |sandbox| {
            sandbox.ok("volume convert tank/a --layout raid6");
        },
        state: "online",
        condition: "is being converted from raid5 over 4 drives",
        action: "stripewise pool wait tank convert",
        after: "online",
    },
];

#[test]
fn every_state_names_the_command_that_helps() {
    for case in CASES {
        let what = case.what;
        let sandbox = Sandbox::new();
        sandbox.ok("drive make @d --count 5 --size 32MiB");
        let drives: Vec<String> = (0..case.drives).map(|drive| format!("@d/drive{drive}.img")).collect();
        let spare = if case.spare { " --spare @d/drive4.img" } else { "" };
        sandbox.ok(&format!("pool create tank {}{spare}", drives.join(" ")));
        sandbox.ok(&format!("volume create tank/a {} --size 4MiB", case.volume));
        let data = unique_bytes(LENGTH, 7);
        sandbox.write("tank/a", 0, &data);
        let status = sandbox.json("pool status tank");
        let id = status["pools"][0]["drives"][1]["id"].as_str().expect("an identity").to_owned();

        (case.happens)(&sandbox);
        let status = sandbox.run("pool status tank --json").json();
        let pool = &status["pools"][0];
        let text = |key: &str| pool[key].as_str().expect("text").to_owned();
        assert_eq!(text("state"), case.state, "{what}: {}", text("condition"));
        assert!(text("condition").contains(case.condition), "{what}: {}", text("condition"));
        assert_eq!(text("action"), case.action.replace("ID", &id), "{what}: {}", text("condition"));

        // As printed, with the placeholders filled in.
        sandbox.ok("drive make @new --count 1 --size 32MiB");
        let command = text("action").replace("NEW-DRIVE", "@new/drive0.img");
        let command = command.replace("--dir DIR", "--dir @d --dir @away");
        if let Some(command) = command.strip_prefix("stripewise ") {
            sandbox.ok(command);
            sandbox.ok("pool wait tank rebuild");
        }
        let status = sandbox.run("pool status tank --json").json();
        let pool = &status["pools"][0];
        assert_eq!(pool["state"], case.after, "{what}, afterwards: {}", pool["condition"]);
        assert!(sandbox.read("tank/a", 0, LENGTH) == data, "{what}");
    }
}

#[test]
fn advice_after_pool_create_suits_its_drives() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 4 --size 32MiB");
    for drives in 1..=4 {
        let names: Vec<String> = (0..drives).map(|drive| format!("@d/drive{drive}.img")).collect();
        let made = sandbox.ok(&format!("pool create tank {}", names.join(" "))).err;
        let advice = made.lines().find_map(|line| line.strip_prefix("next: stripewise ")).expect("advice");
        let (command, _) = advice.split_once("   ").unwrap_or((advice, ""));
        sandbox.ok(&command.replace("VOL", "a"));
        sandbox.ok("pool destroy tank --yes");
    }
}

#[test]
fn offline_reports_the_remaining_redundancy() {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid6 --size 4MiB");
    let said = sandbox.ok("pool offline tank @d/drive0.img").err;
    assert!(
        said.contains("drive0.img is offline, volume tank/a survives the loss of 1 more drive"),
        "{said}"
    );
    let said = sandbox.ok("pool offline tank @d/drive1.img").err;
    assert!(said.contains("drive1.img is offline, volume tank/a has no redundancy left"), "{said}");
    let said = sandbox.run("pool offline tank @d/drive2.img").expect_code(1).err;
    assert!(said.contains("could not be read"), "{said}");
}

#[test]
fn a_pool_in_use_by_another_registry_is_not_failed() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    sandbox.ok("volume create tank/a --layout raid5 --size 4MiB");
    let elsewhere = |words: &str| {
        let mut command = sandbox.command(words);
        let output = command.env("STRIPEWISE_HOME", sandbox.path("home2")).output().expect("it runs");
        (output.status.code(), String::from_utf8(output.stdout).expect("text"))
    };
    assert_eq!(elsewhere("pool import --dir @d tank").0, Some(0));
    let daemon = crate::kit::daemon::Daemon::start(&sandbox, "");
    let (code, said) = elsewhere("pool status tank --json");
    let status: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let pool = &status["pools"][0];
    assert_eq!((code, pool["state"].as_str()), (Some(0), Some("online")), "{pool}");
    assert!(pool["condition"].as_str().is_some_and(|text| text.contains("in use by process")), "{pool}");
    for drive in pool["drives"].as_array().expect("drives") {
        assert_eq!(drive["state"], "online");
    }
    // A drive that another process may be changing is not read.
    assert_eq!(elsewhere("volume read tank/a --length 512").0, Some(1));
    daemon.end();
}
