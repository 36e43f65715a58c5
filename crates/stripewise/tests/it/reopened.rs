//! Pools that lost more drives than they can do without, and are closed and reopened by
//! `pool online`, under those who use their volumes: files that are open, loop devices with a file
//! system. Passed over, with a word about it, where the machine has no FUSE or no loop devices, or
//! the tests do not run as root. Each in a process of its own: another test that starts a program
//! closes all open files once more in its child, and closing flushes.

use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use crate::kit::daemon::until;
use crate::kit::mount::Mount;
use crate::kit::programs::{is_possible, program, succeeds};
use crate::kit::{Sandbox, unique_bytes};
use crate::own_process::is_own_process;

const EIO: i32 = 5;

fn away(sandbox: &Sandbox, index: usize) -> PathBuf {
    sandbox.path(&format!("away{index}.img"))
}

/// Removes two drives of pool `tank`, so that volume `a` takes no more writes. Starts no process.
fn lose(sandbox: &Sandbox, mount: &Mount, pair: [usize; 2]) {
    for index in pair {
        std::fs::rename(sandbox.drive_path(index), away(sandbox, index)).expect("moved");
    }
    let mode = || std::fs::metadata(mount.file("tank/a")).expect("there").mode() & 0o777;
    until("it is noticed", || mode() == 0o400);
}

/// They are there again, and the command that the status names reopens the pool.
fn have_back(sandbox: &Sandbox, pair: [usize; 2]) {
    for index in pair {
        std::fs::rename(away(sandbox, index), sandbox.drive_path(index)).expect("moved");
    }
    let status = sandbox.run("pool status tank --json").json();
    let action = status["pools"][0]["action"].as_str().expect("text").to_owned();
    let done = sandbox.ok(action.strip_prefix("stripewise ").expect("a command"));
    assert!(done.text().contains("was reopened"), "{}", done.text());
}

#[test]
fn open_files_report_lost_writes_once_after_a_reopen() {
    if !is_own_process("reopened::open_files_report_lost_writes_once_after_a_reopen") {
        return;
    }
    if !is_possible(&[]) {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid5 --size 16MiB");
    sandbox.ok("volume create tank/b --layout raid6 --size 8MiB");
    let mount = Mount::start(&sandbox, "serve tank --fuse @m");
    let data = unique_bytes(4 << 20, 5);
    let [flushed, unflushed, silent] = [0; 3].map(|_| mount.open("tank/a"));
    let can_spare_two = mount.open("tank/b");
    flushed.write_all_at(&data, 0).expect("written");
    flushed.sync_all().expect("durable");
    for (round, pair) in [[1, 2], [3, 0]].into_iter().enumerate() {
        let piece = unique_bytes(100_000, 6 + round as u64);
        unflushed.write_all_at(&piece, 5 << 20).expect("written");
        can_spare_two.write_all_at(&piece, 0).expect("written");
        lose(&sandbox, &mount, pair);
        let error = unflushed.write_all_at(&piece, 6 << 20).expect_err("not with two drives");
        assert_eq!(error.raw_os_error(), Some(EIO));
        have_back(&sandbox, pair);
        let refused = sandbox.fails("volume delete tank/a --yes");
        assert!(refused.contains("a client has tank/a open"), "also before it is used again: {refused}");

        let mut read = vec![0; data.len()];
        silent.read_exact_at(&mut read, 0).expect("read");
        assert!(read == data, "what was durable is there");
        let error =
            unflushed.sync_all().err().unwrap_or_else(|| panic!("it may be lost: {}", mount.process.said()));
        assert_eq!(error.raw_os_error(), Some(EIO));
        unflushed.sync_all().expect("reported once");
        // A flush speaks of the file, whichever descriptor it was written through.
        for other in [&silent, &flushed] {
            let error = other.sync_all().expect_err("it was open when that was lost");
            assert_eq!(error.raw_os_error(), Some(EIO));
            other.sync_all().expect("reported once");
        }
        mount.open("tank/a").sync_all().expect("opened after the loss was reported");
        // Closing the pool made it durable where that could be done.
        can_spare_two.sync_all().expect("nothing is lost");
        assert!(sandbox.read("tank/b", 0, piece.len()) == piece);

        unflushed.write_all_at(&piece, 7 << 20).expect("written");
        unflushed.sync_all().expect("durable");
        assert!(sandbox.read("tank/a", 7 << 20, piece.len()) == piece);
        until("the pool is whole again", || sandbox.run("pool status tank").code == 0);
    }
    drop([flushed, unflushed, silent, can_spare_two]);
    mount.end();
    assert!(sandbox.read("tank/a", 0, data.len()) == data);
}

#[test]
fn a_loop_device_survives_a_reopened_pool() {
    if !is_own_process("reopened::a_loop_device_survives_a_reopened_pool") {
        return;
    }
    if !is_possible(&["losetup", "mkfs.ext4", "e2fsck", "mount", "umount"]) {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.pool(4);
    sandbox.ok("volume create tank/a --layout raid5 --size 40MiB");
    let mount = Mount::start(&sandbox, "serve tank --fuse @m");
    let volume = mount.file("tank/a").display().to_string();
    let device = succeeds(&["losetup", "--find", "--show", "--direct-io=on", &volume]).trim().to_owned();
    succeeds(&["mkfs.ext4", "-q", &device]);
    let folder = sandbox.path("fs");
    std::fs::create_dir(&folder).expect("made");
    let at = folder.display().to_string();
    succeeds(&["mount", &device, &at]);
    let data = unique_bytes(8 << 20, 3);
    let write = |name: &str| {
        std::fs::write(folder.join(name), &data)?;
        std::fs::File::open(folder.join(name))?.sync_all()
    };
    write("before").expect("durable");

    lose(&sandbox, &mount, [1, 2]);
    write("during").expect_err("not with two drives");
    have_back(&sandbox, [1, 2]);
    succeeds(&["blockdev", "--flushbufs", &device]);
    assert!(std::fs::read(folder.join("before")).expect("read") == data, "it can be read on");
    // The file system is read-only after the errors; it is repaired on the same device.
    succeeds(&["umount", &at]);
    let checked = program(&["e2fsck", "-f", "-y", &device]);
    assert!(matches!(checked.status.code(), Some(0 | 1)), "{checked:?}");
    succeeds(&["mount", &device, &at]);
    assert!(std::fs::read(folder.join("before")).expect("read") == data);
    write("after").expect("durable");
    succeeds(&["umount", &at]);
    succeeds(&["losetup", "--detach", &device]);
    mount.end();
}
