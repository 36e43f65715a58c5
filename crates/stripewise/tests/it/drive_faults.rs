//! Faults of one drive's path or file: they cost a redundant pool that drive and nothing else, for
//! commands that look and for commands that change alike.

use std::os::unix::fs::symlink;

use crate::kit::daemon::{Daemon, until};
use crate::kit::nbd_servers::{MIB, drive_state, nothing_is_wrong};
use crate::kit::{Sandbox, unique_bytes};

#[test]
fn a_path_that_errs_costs_one_drive() {
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    sandbox.ok("volume create tank/a --layout raid5 --size 6MiB");
    let mut data = unique_bytes(2 * MIB, 1);
    sandbox.write("tank/a", 0, &data);
    let (there, away) = (sandbox.drive_path(2), sandbox.path("away.img"));
    let list = sandbox.path("home/pools.json");
    let faults: [(&str, &dyn Fn()); 3] = [
        ("links in a circle", &|| symlink(&there, &there).expect("linked")),
        ("a name that is too long", &|| {
            let listed = std::fs::read_to_string(&list).expect("a list");
            let long = "x".repeat(300);
            std::fs::write(&list, listed.replace("drive2.img", &long)).expect("written");
        }),
        ("a name that ends in the middle", &|| {
            let listed = std::fs::read_to_string(&list).expect("a list");
            std::fs::write(&list, listed.replace("drive2.img", r"drive\u00002.img")).expect("written");
        }),
    ];
    for (index, (what, fault)) in faults.into_iter().enumerate() {
        std::fs::rename(&there, &away).expect("moved");
        fault();
        let status = sandbox.run("pool status tank --json").expect_code(3).json();
        assert_eq!(status["pools"][0]["drives"][2]["state"], "missing", "{what}: {status}");
        let piece = unique_bytes(200_000, 10 + index as u64);
        let writing = sandbox.run_with_input("volume write tank/a", &piece).expect_code(0);
        assert!(writing.err.contains("is taken as missing"), "{what}: {}", writing.err);
        data[..piece.len()].copy_from_slice(&piece);
        assert!(sandbox.read("tank/a", 0, data.len()) == data, "{what}");
        let _ = std::fs::remove_file(&there);
        std::fs::rename(&away, &there).expect("moved");
        sandbox.ok("pool wait tank rebuild");
        sandbox.ok("pool status tank");
    }
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    nothing_is_wrong(&sandbox);
}

#[test]
fn a_member_cut_while_served_has_failed() {
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 2 --size 64MiB");
    sandbox.ok("pool create tank @d/drive0.img @d/drive1.img");
    sandbox.ok("volume create tank/a --layout raid1 --columns 2 --size 30MiB --checksums off");
    let mut data = unique_bytes(30 * MIB, 2);
    sandbox.write("tank/a", 0, &data);
    let daemon = Daemon::start(&sandbox, "tank");
    let cut = || std::fs::File::options().write(true).open(sandbox.drive_path(0)).expect("a drive");
    cut().set_len(8 << 20).expect("cut");
    // Beyond the cut: the file has a hole now.
    let (at, piece) = (29 * MIB, unique_bytes(256 << 10, 3));
    sandbox.write("tank/a", at as u64, &piece);
    data[at..at + piece.len()].copy_from_slice(&piece);
    for _ in 0..3 {
        assert!(sandbox.read("tank/a", 0, data.len()) == data, "a hole is not read");
    }
    until("it is missed", || drive_state(&sandbox, 0) == "failed");
    daemon.end();

    // As long as before it is of no use all the same, until it is filled again.
    cut().set_len(64 << 20).expect("as long as before");
    assert_eq!(drive_state(&sandbox, 0), "stale");
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    sandbox.ok("pool replace tank @d/drive0.img @d/drive0.img --wait");
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
    nothing_is_wrong(&sandbox);
}
