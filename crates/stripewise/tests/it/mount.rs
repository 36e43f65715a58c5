//! Volumes as files, and file systems on them, through the kernel's FUSE and loop devices. Passed
//! over, with a word about it, where the machine has none of these or the tests do not run as root.
//!
//! Invariant I35 (`docs/internals/invariants.md`).

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::Duration;

use crate::kit::daemon::until_within;
use crate::kit::mount::{Mount, is_mounted};
use crate::kit::programs::{is_possible, program, succeeds};
use crate::kit::{Sandbox, unique_bytes};

fn until(what: &str, is_so: impl FnMut() -> bool) {
    until_within(Duration::from_secs(120), what, is_so);
}

#[test]
fn mounted_volumes_are_files() {
    if !is_possible(&["dd", "fallocate"]) {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid5 --size 16MiB");
    sandbox.ok("volume create tank/b --layout raid1 --columns 2 --size 4MiB --thin");
    let mount = Mount::start(&sandbox, "mount tank @m");
    let size = sandbox.json("volume show tank/a")["volumes"][0]["capacity_bytes"].as_u64().expect("a number");
    let metadata = std::fs::metadata(mount.file("a")).expect("there");
    assert_eq!((metadata.len(), metadata.mode() & 0o7777), (size, 0o600));
    let names = || {
        let mut names: Vec<_> = std::fs::read_dir(&mount.folder)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["a", "b"]);

    // Any bytes; a command, which the mounting process executes, sees the same.
    let file = mount.open("a");
    let data = unique_bytes(3_000_001, 1);
    file.write_all_at(&data, 12_345).expect("written");
    file.sync_all().expect("flushed");
    assert!(sandbox.read("tank/a", 12_345, data.len()) == data);
    let mut read = vec![0; data.len()];
    file.read_exact_at(&mut read, 12_345).expect("read");
    assert!(read == data);
    let mut beyond = [0; 100];
    assert_eq!(file.read_at(&mut beyond, size - 10).expect("read"), 10, "up to the end");
    assert_eq!(file.read_at(&mut beyond, size).expect("read"), 0);
    assert_eq!(file.write_at(&beyond, size).expect_err("no room").raw_os_error(), Some(28));

    // Past the page cache.
    let (from, to) = (sandbox.path("direct"), mount.file("a"));
    let direct = unique_bytes(2 << 20, 2);
    std::fs::write(&from, &direct).expect("written");
    let (from, to) = (format!("if={}", from.display()), format!("of={}", to.display()));
    succeeds(&["dd", &from, &to, "bs=256k", "seek=16", "oflag=direct", "conv=notrunc"]);
    assert!(sandbox.read("tank/a", 4 << 20, direct.len()) == direct);
    let refused = program(&["dd", &from, &to, "bs=256k"]);
    assert!(!refused.status.success(), "a file is not cut off");

    // Many at once, whose pieces share blocks of 512 bytes.
    let expected = unique_bytes(8 * 50 * 777, 3);
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let (file, expected) = (&file, &expected);
            scope.spawn(move || {
                for piece in (worker..8 * 50).step_by(8) {
                    let range = piece * 777..(piece + 1) * 777;
                    file.write_all_at(&expected[range.clone()], 99 + range.start as u64).expect("written");
                }
            });
        }
    });
    assert!(sandbox.read("tank/a", 99, expected.len()) == expected);

    // Holes and zeros are zeros, byte for byte.
    file.write_all_at(&unique_bytes(4 << 20, 4), 0).expect("written");
    let before = sandbox.read("tank/a", 0, 4 << 20);
    let a = mount.file("a").display().to_string();
    succeeds(&["fallocate", "--punch-hole", "--offset", "1000", "--length", "2000000", &a]);
    succeeds(&["fallocate", "--zero-range", "--keep-size", "--offset", "3000001", "--length", "333", &a]);
    let mut expected = before;
    expected[1000..2_001_000].fill(0);
    expected[3_000_001..3_000_334].fill(0);
    assert!(sandbox.read("tank/a", 0, 4 << 20) == expected);
    for wrong in [&["--length", "1000"][..], &["--collapse-range", "--length", "4096"]] {
        let words = [&["fallocate"], wrong, &[a.as_str()]].concat();
        assert!(!program(&words).status.success(), "{words:?}");
    }

    // The size is a command's matter, and so is what there is.
    file.set_len(size).expect("as it is");
    assert!(file.set_len(size - 512).is_err() && file.set_len(size + 512).is_err());
    assert!(File::create_new(mount.file("new")).is_err());
    assert!(std::fs::remove_file(mount.file("a")).is_err());
    assert!(std::fs::rename(mount.file("a"), mount.file("c")).is_err());
    sandbox.ok("volume create tank/c --layout raid5 --size 4MiB");
    assert_eq!(names(), ["a", "b", "c"]);
    sandbox.ok("volume resize tank/c 8MiB");
    assert!(std::fs::metadata(mount.file("c")).expect("there").len() >= 8 << 20);
    sandbox.ok("volume delete tank/c --yes");
    assert_eq!(names(), ["a", "b"]);

    // A volume in use cannot be deleted or resized.
    for words in [
        "volume delete tank/a --yes",
        "volume resize tank/a 8MiB",
        "pool destroy tank --yes",
        "pool export tank",
    ] {
        let refused = sandbox.fails(words);
        assert!(
            refused.contains("a client has tank/a open") && refused.contains("hint: "),
            "{words}: {refused}"
        );
    }
    let refused = sandbox.run_with_input("volume write tank/a", b"under it").expect_code(1).err;
    assert!(refused.contains("a client has tank/a open") && refused.contains("hint: "), "{refused}");
    sandbox.ok("volume resize tank/b 6MiB");

    // The refusal of a second mount names the process that has the pool.
    std::fs::create_dir(sandbox.path("m2")).expect("made");
    let second = sandbox.fails("mount tank @m2");
    assert!(second.contains("is open in `stripewise mount`") && second.contains("hint: "), "{second}");

    // On shutdown it keeps serving files that are still open.
    mount.process.signal("-TERM");
    until("it waits", || {
        file.write_all_at(&[7; 1000], 1 << 20).expect("served");
        mount.process.said().contains("busy")
    });
    file.write_all_at(&[7; 1000], 1 << 20).expect("still served");
    drop(file);
    let folder = mount.folder.clone();
    let said = mount.ends();
    assert!(said.contains("busy") && said.contains("unmounted and closed"), "{said}");
    assert!(said.contains("volume resize"), "it reported the refused resize: {said}");
    assert!(!is_mounted(&folder));
    assert!(sandbox.read("tank/a", 1 << 20, 1000) == [7; 1000]);
}

#[test]
fn fsync_on_one_descriptor_covers_all_others() {
    if !is_possible(&[]) {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid5 --size 24MiB");
    let mut mount = Mount::start(&sandbox, "mount tank @m");
    let data = unique_bytes(300_000, 17);
    let writer = mount.open("a");
    let reader = File::open(mount.file("a")).expect("it can be opened for reading");
    writer.write_all_at(&data, 5 << 20).expect("written");
    reader.sync_all().expect("durable");
    mount.kill();
    drop((writer, reader));
    mount.unmount();
    assert!(sandbox.read("tank/a", 5 << 20, data.len()) == data, "it was flushed before the kill");
}

#[test]
fn concurrent_requests_get_their_own_answers() {
    if !is_possible(&["dd"]) {
        return;
    }
    const CLIENTS: usize = 32;
    const PART: usize = 256 << 10;
    const BLOCK: usize = 4096;
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid5 --size 16MiB");
    let mount = Mount::start(&sandbox, "mount tank @m");
    let expected = unique_bytes(CLIENTS * PART, 5);
    std::thread::scope(|scope| {
        for (client, part) in expected.chunks(PART).enumerate() {
            let file = mount.open("a");
            scope.spawn(move || {
                let start = client * PART;
                for (number, block) in part.chunks(BLOCK).enumerate() {
                    file.write_all_at(block, (start + number * BLOCK) as u64).expect("written");
                    // One written before, found by a number that jumps.
                    let earlier = number * 7 % (number + 1) * BLOCK;
                    let mut read = vec![0; BLOCK];
                    file.read_exact_at(&mut read, (start + earlier) as u64).expect("read");
                    assert!(read == part[earlier..earlier + BLOCK], "client {client}, at {earlier}");
                }
                let mut read = vec![0; PART];
                file.read_exact_at(&mut read, start as u64).expect("read");
                assert!(read == part, "client {client}, in one piece");
            });
        }
    });

    // Clients killed with requests in flight: their replies are dropped, other clients go on.
    let volume = mount.file("a").display().to_string();
    let (from, to) = (format!("if={volume}"), format!("of={volume}"));
    let reader = ["bs=512", &from, "of=/dev/null"];
    let writer = ["bs=512", "if=/dev/zero", &to, "seek=16384", "conv=notrunc"];
    let start = |words: &[&str]| {
        let mut client = std::process::Command::new("dd");
        client.args(words).stderr(std::process::Stdio::null()).spawn().expect("dd starts")
    };
    let mut clients: Vec<_> = (0..16).map(|client| start([&reader[..], &writer[..]][client % 2])).collect();
    std::thread::sleep(Duration::from_millis(200));
    for client in &mut clients {
        client.kill().expect("killed, or over");
    }
    for client in &mut clients {
        client.wait().expect("gone");
    }
    assert!(sandbox.read("tank/a", 0, expected.len()) == expected);
    let said = mount.end();
    assert!(said.contains("unmounted and closed"), "{said}");
    assert!(sandbox.read("tank/a", 0, expected.len()) == expected);
}

#[test]
fn unusable_mount_folders_are_reported() {
    if !is_possible(&["umount"]) {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    sandbox.ok("volume create tank/a --layout raid5 --size 8MiB");
    let missing = sandbox.fails("mount tank @nowhere");
    assert!(missing.contains("no such folder") && missing.contains("hint: mkdir"), "{missing}");
    let file = sandbox.fails("mount tank @d/drive0.img");
    assert!(file.contains("not a folder") && file.contains("hint: "), "{file}");
    let full = sandbox.fails("mount tank @d");
    assert!(full.contains("not empty") && full.contains("hint: "), "{full}");
    std::fs::create_dir(sandbox.path("m")).expect("made");
    sandbox.run("mount tank @m --fs xfs").expect_code(2);
    sandbox.run("mount tank/a @m").expect_code(2);
    assert!(sandbox.fails("mount nothing @m").contains("there is no pool `nothing`"));
    assert!(sandbox.fails("mount tank/none @m --fs ext4").contains("none"));

    let mut mount = Mount::start(&sandbox, "mount tank @m");
    let busy = sandbox.fails("serve --fuse @m");
    assert!(busy.contains("is mounted there") && busy.contains("hint: "), "{busy}");
    // Acknowledged as durable, then killed.
    let data = unique_bytes(1 << 20, 5);
    let file = mount.open("a");
    file.write_all_at(&data, 4321).expect("written");
    file.sync_all().expect("durable");
    mount.kill();
    assert!(file.write_at(&data, 0).is_err(), "the mount is dead");
    drop(file);
    let stale = sandbox.fails("mount tank @m");
    assert!(stale.contains("stale mount") && stale.contains("fusermount3 -u"), "{stale}");
    mount.unmount();
    let mount = Mount::start(&sandbox, "serve --fuse @m");
    let mut read = vec![0; data.len()];
    mount.open("tank/a").read_exact_at(&mut read, 4321).expect("read");
    assert!(read == data);
    let said = mount.end();
    assert!(!said.contains("was unmounted"), "by itself is no news: {said}");
}

#[test]
fn unmounting_a_served_folder_raises_an_alert() {
    if !is_possible(&["umount"]) {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    sandbox.ok("volume create tank/a --layout raid5 --size 8MiB");
    let alert = "#!/bin/sh\necho \"$STRIPEWISE_KIND $STRIPEWISE_TEXT\" >> \"$STRIPEWISE_HOME/alerts\"\n";
    std::fs::write(sandbox.path("alert.sh"), alert).expect("written");
    succeeds(&["chmod", "755", &sandbox.text("alert.sh")]);
    let mount = Mount::start(&sandbox, "serve --fuse @m --alert-command @alert.sh");
    mount.unmount();
    until("it is said", || mount.process.said().contains("was unmounted"));
    until("the alert is sent", || {
        let alert = std::fs::read_to_string(sandbox.path("home/alerts")).unwrap_or_default();
        alert.starts_with("mount ") && alert.contains("was unmounted")
    });
    // The daemon's other services continue.
    sandbox.write("tank/a", 0, b"still here");
    assert_eq!(sandbox.read("tank/a", 0, 10), b"still here");
    mount.end();
}

#[test]
fn a_mounted_pool_that_is_destroyed_ends_its_mount() {
    if !is_possible(&["umount"]) {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.pool(3);
    sandbox.ok("volume create tank/a --layout raid5 --size 8MiB");
    let mount = Mount::start(&sandbox, "mount tank @m");
    sandbox.ok("pool destroy tank --yes");
    let folder = mount.folder.clone();
    // Until it has noticed there is nothing to see.
    assert!(std::fs::read_dir(&folder).expect("a folder").next().is_none());
    let said = mount.ends();
    assert!(said.contains("tank was destroyed or exported"), "{said}");
    assert!(!is_mounted(&folder));
}

/// Fills the folder with files while a drive is pulled and replaced; returns their contents.
fn fill_while_a_drive_is_replaced(sandbox: &Sandbox, mount: &Mount) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for index in 0..24 {
        let (path, bytes) =
            (mount.file(&format!("file{index}")), unique_bytes(400_000 + index * 1001, index as u64));
        std::fs::write(&path, &bytes).expect("written");
        File::open(&path).and_then(|file| file.sync_all()).expect("durable");
        files.push((path, bytes));
        match index {
            6 => std::fs::rename(sandbox.path("d/drive1.img"), sandbox.path("pulled.img")).expect("pulled"),
            12 => {
                sandbox.ok("pool replace tank @d/drive1.img @d/drive4.img --force");
            }
            _ => {}
        }
    }
    until("it is rebuilt", || sandbox.run("pool status tank").code == 0);
    files
}

fn expect_files(files: &[(PathBuf, Vec<u8>)]) {
    for (path, bytes) in files {
        assert!(std::fs::read(path).expect("there") == *bytes, "{}", path.display());
    }
}

#[test]
fn ext4_keeps_its_files_while_a_drive_is_replaced() {
    if !is_possible(&["mkfs.ext4", "e2fsck", "losetup"]) {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 5 --size 48MiB");
    sandbox.ok("pool create tank @d/drive0.img @d/drive1.img @d/drive2.img @d/drive3.img");
    sandbox.ok("volume create tank/a --layout raid5 --size 64MiB");
    let mount = Mount::start(&sandbox, "mount tank/a @m --fs ext4");
    let files = fill_while_a_drive_is_replaced(&sandbox, &mount);
    expect_files(&files);
    sandbox.ok("volume resize tank/a 80MiB");
    let named = || mount.process.said().split_once("`resize2fs ").map(|(_, rest)| rest.to_owned());
    until("the loop device has grown with it", || named().is_some());
    let device = named().and_then(|rest| rest.split_once('`').map(|(device, _)| device.to_owned()));
    let device = device.expect("its name");
    assert_eq!(succeeds(&["blockdev", "--getsize64", &device]).trim(), (80_u64 << 20).to_string());
    mount.end();
    let left: Vec<_> = std::fs::read_dir(sandbox.path("home/mounts")).expect("there").collect();
    assert!(left.is_empty(), "{left:?}");

    let wrong = sandbox.fails("mount tank/a @m --fs xfs");
    assert!(wrong.contains("holds an ext4 file system") && wrong.contains("hint: "), "{wrong}");
    let mount = Mount::start(&sandbox, "mount tank @m");
    succeeds(&["e2fsck", "-f", "-n", &mount.file("a").display().to_string()]);
    mount.end();
    let mount = Mount::start(&sandbox, "mount tank/a @m --fs ext4");
    expect_files(&files);
    // The process also ends when the folder is unmounted from outside.
    mount.unmount();
    mount.ends();
    sandbox.ok("pool scrub tank --wait");
}

#[test]
fn btrfs_keeps_its_files_on_a_mirror() {
    if !is_possible(&["mkfs.btrfs", "losetup"]) {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 2 --size 160MiB");
    sandbox.ok("pool create tank @d/drive0.img @d/drive1.img");
    sandbox.ok("volume create tank/a --layout raid1 --size 128MiB --thin");
    let mount = Mount::start(&sandbox, "mount tank/a @m --fs btrfs");
    let data = unique_bytes(5 << 20, 6);
    std::fs::write(mount.file("file"), &data).expect("written");
    let said = mount.end();
    assert!(said.contains("creating a btrfs file system"), "{said}");
    let mount = Mount::start(&sandbox, "mount tank/a @m --fs btrfs");
    expect_files(&[(mount.file("file"), data)]);
    let said = mount.end();
    assert!(!said.contains("making"), "{said}");
    // Anything else on it is left alone.
    sandbox.ok("volume create tank/b --layout raid1 --size 8MiB");
    sandbox.write("tank/b", 500_000, b"something of value");
    let refused = sandbox.fails("mount tank/b @m --fs ext4");
    assert!(refused.contains("data of an unknown kind") && refused.contains("hint: "), "{refused}");
    assert_eq!(sandbox.read("tank/b", 500_000, 18), b"something of value");
}

#[test]
fn xfs_keeps_its_files_when_its_daemon_is_killed() {
    if !is_possible(&["mkfs.xfs", "xfs_repair", "losetup"]) {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.ok("drive make @d --count 5 --size 160MiB");
    sandbox.ok("pool create tank @d/drive0.img @d/drive1.img @d/drive2.img @d/drive3.img");
    sandbox.ok("volume create tank/a --layout raid5 --size 320MiB");
    let mut mount = Mount::start(&sandbox, "mount tank/a @m --fs xfs");
    let files = fill_while_a_drive_is_replaced(&sandbox, &mount);
    mount.kill();
    let busy = sandbox.fails("mount tank/a @m --fs xfs");
    assert!(busy.contains("hint: ") && busy.contains("umount"), "{busy}");
    mount.unmount();
    let mount = Mount::start(&sandbox, "mount tank/a @m --fs xfs");
    expect_files(&files);
    mount.end();
    assert!(std::fs::read_dir(sandbox.path("home/mounts")).expect("there").next().is_none());
    let mount = Mount::start(&sandbox, "mount tank @m");
    succeeds(&["xfs_repair", "-n", "-f", &mount.file("a").display().to_string()]);
    mount.end();
}
