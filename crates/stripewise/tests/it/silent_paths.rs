//! Paths on file systems that do not answer, and on the daemon's own volumes: neither stops a
//! daemon.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::kit::daemon::{Daemon, until};
use crate::kit::mount::{Mount, is_mounted};
use crate::kit::{DRIVE_SIZE, Sandbox};

/// A volume of another process as the file `FOLDER/v`.
fn far_file(sandbox: &Sandbox) -> Option<Mount> {
    if !Path::new("/dev/fuse").exists() {
        println!("skipped: no /dev/fuse");
        return None;
    }
    sandbox.pool(2);
    sandbox.ok("volume create tank/v --layout raid0 --size 40MiB");
    Some(Mount::start(sandbox, "mount tank @m"))
}

#[test]
fn a_hung_mount_stalls_no_client() {
    let far = Sandbox::new();
    let Some(mount) = far_file(&far) else { return };
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("volume create tank/data --layout raid1 --size 4MiB");
    // A redundant pool with a drive on the mount.
    sandbox.ok(&format!("drive make @e --count 1 --size {DRIVE_SIZE}"));
    let file = mount.file("v").display().to_string();
    sandbox.ok(&format!("pool create mixed @e/drive0.img {file}"));
    let daemon = Daemon::start(&sandbox, "");
    mount.process.signal("-STOP");
    let adding = sandbox.command(&format!("pool add tank {file}.other")).spawn().expect("started");
    // The daemon looks at its drives each second.
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(3) {
        let asked = Instant::now();
        sandbox.read("tank/data", 0, 4096);
        assert!(asked.elapsed() < Duration::from_secs(2), "it took {:?}", asked.elapsed());
    }
    let added = adding.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&added.stderr).into_owned();
    assert!(said.contains("its file system does not answer"), "{said}");
    mount.process.signal("-CONT");
    until("the drive is used", || sandbox.run("pool status mixed").code == 0);
    daemon.end();
    mount.end();
}

#[test]
fn own_volumes_are_no_drives_by_way_of_mounts() {
    let sandbox = Sandbox::new();
    let Some(mount) = far_file(&sandbox) else { return };
    mount.end();
    sandbox.ok(&format!("drive make @e --count 2 --size {DRIVE_SIZE}"));
    sandbox.ok("pool create other @e/drive0.img");
    std::fs::create_dir_all(sandbox.path("m")).expect("made");
    let daemon = Daemon::start(&sandbox, "--fuse @m --nbd unix:nbd.sock --nbd tcp:0");
    assert!(is_mounted(&sandbox.path("m")));
    let port = daemon
        .said()
        .lines()
        .filter_map(|line| line.split("127.0.0.1:").nth(1))
        .next()
        .expect("a port")
        .to_owned();
    let socket = sandbox.text("nbd.sock");
    for drive in [
        sandbox.text("m/tank/v"),
        format!("nbd+unix:///tank/v?socket={socket}"),
        format!("nbd://127.0.0.1:{port}/tank/v"),
    ] {
        let said = sandbox.fails(&format!("pool add other {drive}"));
        assert!(said.contains("lies on a volume that this process itself serves"), "{drive}: {said}");
        assert!(said.contains("POOL/VOL"), "{said}");
    }
    // Another process does not know; the daemon does not take the drive.
    let made = sandbox.run(&format!("pool create loop @e/drive1.img {}", sandbox.text("m/tank/v")));
    if made.code == 0 {
        until("the pool is served without it", || {
            sandbox.run("pool status loop --json").json()["pools"][0]["state"] == "degraded"
        });
    }
    sandbox.read("tank/v", 0, 4096);
    daemon.end();
}
