//! A destroyed pool is listed, comes back while its drives were not used again, and never stands in
//! the way of a new pool.

use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::kit::daemon::Daemon;
use crate::kit::{Sandbox, unique_bytes};

/// A pool of four drives with data in RAID 5.
fn with_data() -> (Sandbox, Vec<u8>) {
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid5 --size 6MiB");
    let data = unique_bytes(1 << 20, 7);
    sandbox.write("tank/a", 4096, &data);
    (sandbox, data)
}

/// A message without the line breaks that depend on the length of paths.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn state(sandbox: &Sandbox) -> String {
    let status = sandbox.run("pool status --json").json();
    status["pools"][0]["state"].as_str().unwrap_or("not listed").to_owned()
}

#[test]
fn destroyed_pools_are_listed_and_brought_back() {
    let (sandbox, data) = with_data();
    let note = one_line(&sandbox.ok("pool destroy tank --yes").err);
    assert!(note.contains("--destroyed tank"), "{note}");
    assert_eq!(state(&sandbox), "not listed");
    let shown = one_line(sandbox.ok("drive show @d/drive1.img").text());
    assert!(shown.contains("member of the destroyed pool tank"), "{shown}");

    // Without --destroyed it is not there to be imported.
    let nothing = one_line(&sandbox.fails("pool import --dir @d"));
    assert!(nothing.contains("no pool was found") && nothing.contains("--destroyed"), "{nothing}");
    let refused = one_line(&sandbox.fails("pool import --dir @d tank"));
    assert!(refused.contains("was destroyed") && refused.contains("--destroyed tank"), "{refused}");

    // Other paths for the same drives.
    for (from, to) in [(0, 9), (2, 0), (9, 2)] {
        std::fs::rename(sandbox.drive_path(from), sandbox.drive_path(to)).expect("renamed");
    }
    let listed = sandbox.json("pool import --dir @d --destroyed");
    assert!(listed["pools"][0]["destroyed_unix_s"].is_u64(), "{listed}");
    assert_eq!(
        (&listed["pools"][0]["name"], &listed["pools"][0]["imported"]),
        (&"tank".into(), &false.into())
    );
    sandbox.ok("pool import --dir @d --destroyed tank");
    assert_eq!(state(&sandbox), "online");
    assert!(sandbox.read("tank/a", 4096, data.len()) == data);
    let alive = one_line(&sandbox.fails("pool import --dir @d --destroyed tank"));
    assert!(alive.contains("is not destroyed"), "{alive}");
}

#[test]
fn a_new_pool_takes_destroyed_drives_unasked() {
    let (sandbox, data) = with_data();
    sandbox.ok("pool destroy tank --yes");
    let said = one_line(&sandbox.ok("pool create other @d/drive0.img").err);
    assert!(said.contains("destroyed pool `tank`"), "{said}");
    sandbox.ok("pool import --dir @d --destroyed tank");
    let status = sandbox.run("pool status tank --json").expect_code(3).json();
    assert_eq!(status["pools"][0]["state"], "degraded");
    assert!(sandbox.read("tank/a", 4096, data.len()) == data);

    sandbox.ok("pool destroy tank --yes");
    sandbox.ok("pool add other @d/drive1.img");
    let lost = one_line(&sandbox.fails("pool import --dir @d --destroyed tank"));
    assert!(lost.contains("now holds a drive of pool `other`"), "{lost}");
    assert_eq!(sandbox.json("pool list")["pools"].as_array().expect("pools").len(), 1);
    // Data that was written over a destroyed pool is no part of it.
    let file = std::fs::File::options().write(true).open(sandbox.drive_path(2)).expect("a drive");
    file.write_all_at(b"XFSB", 0).expect("written");
    let refused = one_line(&sandbox.fails("pool add other @d/drive2.img"));
    assert!(refused.contains("nothing was changed"), "{refused}");
}

#[test]
fn a_daemon_destroys_and_brings_back() {
    let (sandbox, data) = with_data();
    let daemon = Daemon::start(&sandbox, "");
    sandbox.ok("pool destroy tank --yes");
    assert_eq!(state(&sandbox), "not listed");
    sandbox.ok("pool import --dir @d --destroyed tank");
    assert!(sandbox.read("tank/a", 4096, data.len()) == data);
    daemon.end();
    assert!(sandbox.read("tank/a", 4096, data.len()) == data);
}

#[test]
fn a_destroyed_pool_on_the_list_goes_either_way() {
    for undo in [true, false] {
        let (sandbox, data) = with_data();
        let copy = |from: &str, to: &str| {
            let words = ["-a", &sandbox.text(from), &sandbox.text(to)];
            assert!(Command::new("cp").args(words).status().expect("cp").success());
        };
        copy("home", "before");
        sandbox.ok("pool destroy tank --yes");
        // As if the command had been killed before it took the pool off the list.
        std::fs::remove_dir_all(sandbox.path("home")).expect("removed");
        copy("before", "home");
        let refused = one_line(&sandbox.fails("volume show tank/a"));
        assert!(refused.contains("pool tank was destroyed"), "{refused}");
        assert!(refused.contains("--destroyed tank"), "{refused}");
        if undo {
            sandbox.ok("pool import --dir @d --destroyed tank");
            assert_eq!(state(&sandbox), "online");
            assert!(sandbox.read("tank/a", 4096, data.len()) == data);
        } else {
            sandbox.ok("pool destroy tank --yes");
            assert_eq!(state(&sandbox), "not listed");
            sandbox.fails("pool import --dir @d tank");
        }
    }
}

#[test]
fn a_wiped_pool_is_gone_for_good() {
    let (sandbox, _) = with_data();
    sandbox.ok("pool destroy tank --yes --wipe");
    let nothing = one_line(&sandbox.fails("pool import --dir @d --destroyed"));
    assert!(nothing.contains("no destroyed pool"), "{nothing}");
    sandbox.ok("pool create tank @d/drive0.img @d/drive1.img");
    sandbox.ok("pool destroy tank --yes");
    for drive in 0..2 {
        sandbox.ok(&format!("drive clear @d/drive{drive}.img --yes"));
    }
    let nothing = one_line(&sandbox.fails("pool import --dir @d --destroyed"));
    assert!(nothing.contains("no destroyed pool"), "{nothing}");
}
