//! Mounts that a daemon keeps for commands: they begin and end by command, are in the status, and
//! come back with the next daemon.

use std::path::PathBuf;
use std::time::Duration;

use crate::kit::daemon::{Daemon, Process, until_within};
use crate::kit::mount::is_mounted;
use crate::kit::programs::{is_possible, program, succeeds};
use crate::kit::{Sandbox, unique_bytes};

fn until(what: &str, is_so: impl FnMut() -> bool) {
    until_within(Duration::from_secs(120), what, is_so);
}

/// Unmounts what a failed test leaves mounted, after its daemon was killed.
struct Folder(PathBuf);

impl Folder {
    fn new(sandbox: &Sandbox, name: &str) -> Self {
        let path = sandbox.path(name);
        std::fs::create_dir(&path).expect("made");
        Self(path)
    }

    fn is_mounted(&self) -> bool {
        is_mounted(&self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_mounted() {
            program(&["umount", "--lazy", &self.0.display().to_string()]);
        }
    }
}

fn mounts(sandbox: &Sandbox) -> serde_json::Value {
    sandbox.json("pool status tank")["pools"][0]["mounts"].clone()
}

#[test]
fn a_daemon_keeps_a_file_system_mounted() {
    if !is_possible(&["mkfs.ext4", "losetup"]) {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 3 --size 64MiB");
    sandbox.ok("pool create tank @d/drive0.img @d/drive1.img @d/drive2.img");
    sandbox.ok("volume create tank/a --layout raid5 --size 64MiB");
    let folder = Folder::new(&sandbox, "data");
    let busy = Folder::new(&sandbox, "busy");
    std::fs::write(busy.0.join("file"), "there").expect("written");
    let daemon = Daemon::start(&sandbox, "");
    // The folder is checked as by the command alone.
    assert!(sandbox.fails("mount tank/a @busy --fs ext4").contains("the folder is not empty"));
    assert!(sandbox.fails("mount tank/b @data --fs ext4").contains("has no volume `b`"));
    assert_eq!(mounts(&sandbox), serde_json::json!([]), "what failed is not kept");
    let mounted = sandbox.ok("mount tank/a @data --fs ext4");
    assert!(mounted.text().contains("tank/a is mounted at"), "{}", mounted.text());
    assert!(folder.is_mounted());
    let data = unique_bytes(3_000_001, 1);
    std::fs::write(folder.0.join("file"), &data).expect("written");
    let shown = mounts(&sandbox);
    assert_eq!((&shown[0]["target"], &shown[0]["state"]), (&"tank/a".into(), &"mounted".into()));
    let status = sandbox.ok("pool status tank").one_line();
    assert!(status.contains(&format!("mount: tank/a at {} (ext4)", folder.0.display())), "{status}");
    assert!(sandbox.fails("mount tank/a @busy --fs ext4").contains("hint: "));
    assert!(sandbox.fails("volume delete tank/a --yes").contains("open"), "a volume in use");
    // It ends with the daemon, and comes back with the next one.
    daemon.end();
    assert!(!folder.is_mounted(), "it ends cleanly");
    let daemon = Daemon::start(&sandbox, "");
    assert!(folder.is_mounted(), "before the daemon is ready");
    assert!(std::fs::read(folder.0.join("file")).expect("there") == data);
    // In use it stays; the error names the next command.
    let open = std::fs::File::open(folder.0.join("file")).expect("open");
    let refused = sandbox.fails("umount @data");
    assert!(refused.contains("stays mounted") && refused.contains("fuser -vm"), "{refused}");
    drop(open);
    sandbox.ok("umount tank/a");
    assert!(!folder.is_mounted() && mounts(&sandbox) == serde_json::json!([]));
    daemon.end();
    let daemon = Daemon::start(&sandbox, "");
    assert!(!folder.is_mounted(), "it does not come back");
    daemon.end();
}

#[test]
fn a_mount_that_another_process_ends_is_reported() {
    if !is_possible(&["umount"]) {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("volume create tank/a --layout raid1 --size 4MiB");
    let folder = Folder::new(&sandbox, "files");
    let daemon = Daemon::start(&sandbox, "");
    sandbox.ok("mount tank @files");
    assert!(folder.0.join("a").exists());
    succeeds(&["umount", &folder.0.display().to_string()]);
    until("the status says so", || mounts(&sandbox)[0]["state"] == "unmounted");
    assert!(daemon.said().contains("was unmounted"), "{}", daemon.said());
    // The command mounts it again; after a kill the next daemon does.
    sandbox.ok("mount tank @files");
    daemon.kill();
    let daemon = Daemon::start(&sandbox, "");
    assert!(folder.0.join("a").exists());
    sandbox.ok("umount @files");
    assert!(!folder.is_mounted());
    daemon.end();
}

#[test]
fn a_folder_that_is_in_the_way_delays_a_mount() {
    if !is_possible(&["umount"]) {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("volume create tank/a --layout raid1 --size 4MiB");
    let folder = Folder::new(&sandbox, "files");
    let daemon = Daemon::start(&sandbox, "");
    sandbox.ok("mount tank @files");
    daemon.end();
    std::fs::write(folder.0.join("file"), "there").expect("written");
    let daemon = Daemon::start(&sandbox, "");
    let shown = mounts(&sandbox);
    assert_eq!(shown[0]["state"], "failed", "{shown}");
    assert!(shown[0]["why"].as_str().is_some_and(|why| why.contains("not empty")), "{shown}");
    assert!(sandbox.ok("pool status tank").one_line().contains("not empty"));
    std::fs::remove_file(folder.0.join("file")).expect("removed");
    sandbox.ok("mount tank @files");
    assert!(folder.is_mounted());
    sandbox.ok("umount tank");
    daemon.end();
}

#[test]
fn umount_needs_a_daemon_and_a_mount_of_it() {
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    assert!(sandbox.fails("umount tank").contains("no daemon is running"));
    let daemon = Daemon::start(&sandbox, "");
    let said = sandbox.fails("umount tank");
    assert!(said.contains("has mounted nothing at tank"), "{said}");
    daemon.end();
}

#[test]
fn mounts_of_fstab_end_with_umount_and_are_waited_for() {
    if !is_possible(&["umount"]) {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.pool(2);
    sandbox.ok("volume create tank/a --layout raid1 --size 4MiB");
    let folder = Folder::new(&sandbox, "files");
    let refused = sandbox.fails("mount tank @files -o wait=0");
    assert!(refused.contains("no daemon mounts it") && refused.contains("hint: "), "{refused}");
    assert!(!folder.is_mounted(), "never without the daemon");
    let mut early = Process::start(&sandbox, "mount tank @files -o nofail,wait=120,_netdev");
    let daemon = Daemon::start(&sandbox, "");
    early.expect_end();
    assert!(folder.0.join("a").exists());
    sandbox.ok("mount tank @files -o defaults");
    let unmount = || {
        succeeds(&["umount", &folder.0.display().to_string()]);
        until("it is forgotten", || mounts(&sandbox) == serde_json::json!([]));
    };
    unmount();
    assert!(!daemon.said().contains("by another process"), "{}", daemon.said());
    // A killed daemon forgets nothing.
    sandbox.ok("mount tank @files -o defaults");
    daemon.kill();
    let daemon = Daemon::start(&sandbox, "");
    assert!(folder.0.join("a").exists());
    unmount();
    assert!(sandbox.fails("mount gone @files -o wait=60").contains("gone"), "an unknown pool: at once");
    daemon.end();
    assert!(!Daemon::start(&sandbox, "").end().contains("is mounted at"));
}
