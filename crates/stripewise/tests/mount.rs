//! Volumes as files, and file systems on them, through the kernel's FUSE and loop devices. Passed over, with a word about it, where the
//! machine has none of these or the tests do not run as root.

mod common;

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use common::{Sandbox, unique_bytes};

/// No test waits longer for anything.
const PATIENCE: Duration = Duration::from_secs(120);

/// Whether what the test needs is here; says so if not.
fn is_possible(programs: &[&str]) -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let mut lacks: Vec<String> = Vec::new();
    if !root {
        lacks.push("root".to_owned());
    }
    for path in ["/dev/fuse", "/dev/loop-control"] {
        if !Path::new(path).exists() {
            lacks.push(path.to_owned());
        }
    }
    for program in programs {
        let found =
            Command::new("sh").args(["-c", &format!("PATH=$PATH:/usr/sbin command -v {program}")]).output();
        if !found.is_ok_and(|output| output.status.success()) {
            lacks.push((*program).to_owned());
        }
    }
    if !lacks.is_empty() {
        eprintln!("passed over: this test needs {}", lacks.join(", "));
    }
    lacks.is_empty()
}

fn program(words: &[&str]) -> Output {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    Command::new(words[0]).args(&words[1..]).env("PATH", path).env("LC_ALL", "C").output().expect("it runs")
}

fn succeeds(words: &[&str]) -> String {
    let output = program(words);
    let says = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {says}{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A process that has something mounted. Whatever becomes of the test, nothing of it stays mounted.
struct Mount {
    child: Child,
    folder: PathBuf,
    sandbox: PathBuf,
}

impl Mount {
    /// Starts `stripewise WORDS`, which mounts at @m, and waits until it is ready.
    fn start(sandbox: &Sandbox, words: &str) -> Self {
        let folder = sandbox.path("m");
        std::fs::create_dir_all(&folder).expect("made");
        let mut child = sandbox.command(words).spawn().expect("started");
        let stdout = child.stdout.take().expect("piped");
        let mut mount = Self { child, folder, sandbox: sandbox.path("") };
        let mut first = String::new();
        BufReader::new(stdout).read_line(&mut first).expect("text");
        if first != "ready\n" {
            panic!("`{words}` is not ready: {}", mount.said());
        }
        mount
    }

    fn said(&mut self) -> String {
        let mut text = String::new();
        let _ = self.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut text));
        text
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn open(&self, name: &str) -> File {
        OpenOptions::new().read(true).write(true).open(self.file(name)).expect("it can be opened")
    }

    fn terminate(&self) {
        succeeds(&["kill", "-TERM", &self.child.id().to_string()]);
    }

    /// Ends it in order; what it said.
    fn end(mut self) -> String {
        self.terminate();
        let said = self.said();
        let status = self.child.wait().expect("ended");
        assert_eq!(status.code(), Some(0), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        assert!(!is_mounted(&self.folder), "{said}");
        said
    }

    fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }
}

fn is_mounted(folder: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("readable");
    table.lines().any(|line| line.split(' ').nth(4).is_some_and(|place| Path::new(place) == folder))
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // What stands on others first: later mounts are further down in the table.
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let places = table.lines().rev().filter_map(|line| line.split(' ').nth(4));
        for place in places.filter(|place| Path::new(place).starts_with(&self.sandbox)) {
            program(&["umount", "--lazy", place]);
        }
        for line in String::from_utf8_lossy(&program(&["losetup", "--list", "--noheadings"]).stdout).lines() {
            if line.contains(&*self.sandbox.to_string_lossy())
                && let Some(device) = line.split_whitespace().next()
            {
                program(&["losetup", "--detach", device]);
            }
        }
    }
}

#[test]
fn volumes_are_files() {
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

    // Any bytes, seen the same through a command, which the mounting process carries out.
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

    // What is open is not taken away.
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
    sandbox.ok("volume resize tank/b 6MiB");

    // Another process is told who has it.
    std::fs::create_dir(sandbox.path("m2")).expect("made");
    let second = sandbox.fails("mount tank @m2");
    assert!(second.contains("kept open by a daemon") && second.contains("hint: "), "{second}");

    // In use at the end: waited for, and served meanwhile.
    mount.terminate();
    until("it goes on", || {
        file.write_all_at(&[7; 1000], 1 << 20).expect("served");
        mount.child.stderr.is_some() && is_mounted(&mount.folder)
    });
    std::thread::sleep(Duration::from_millis(1500));
    file.write_all_at(&[7; 1000], 1 << 20).expect("still served");
    drop(file);
    let mut mount = mount;
    let said = mount.said();
    assert_eq!(mount.child.wait().expect("ended").code(), Some(0), "{said}");
    assert!(said.contains("busy") && said.contains("unmounted and closed"), "{said}");
    assert!(said.contains("volume resize"), "it told about the refused change of size: {said}");
    assert!(!is_mounted(&mount.folder));
    assert!(sandbox.read("tank/a", 1 << 20, 1000) == [7; 1000]);
}

#[test]
fn folders_that_cannot_be_used_are_told() {
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
    assert!(file.write_at(&data, 0).is_err(), "nobody is there");
    drop(file);
    let stale = sandbox.fails("mount tank @m");
    assert!(stale.contains("was killed") && stale.contains("fusermount3 -u"), "{stale}");
    succeeds(&["umount", &mount.folder.display().to_string()]);
    let mount = Mount::start(&sandbox, "serve --fuse @m");
    let mut read = vec![0; data.len()];
    mount.open("tank/a").read_exact_at(&mut read, 4321).expect("read");
    assert!(read == data);
    mount.end();
}

/// Fills the folder with files, a drive being pulled and replaced meanwhile; their contents.
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
fn ext4_on_a_volume_whose_drive_is_replaced() {
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
    // Somebody else unmounts it: then it ends as well.
    succeeds(&["umount", &mount.folder.display().to_string()]);
    let mut mount = mount;
    let said = mount.said();
    assert_eq!(mount.child.wait().expect("ended").code(), Some(0), "{said}");
    sandbox.ok("pool scrub tank --wait");
}

#[test]
fn btrfs_on_a_mirror() {
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
    assert!(said.contains("making a btrfs file system"), "{said}");
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
fn xfs_on_a_volume_whose_daemon_is_killed() {
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
    succeeds(&["umount", &mount.folder.display().to_string()]);
    let mount = Mount::start(&sandbox, "mount tank/a @m --fs xfs");
    expect_files(&files);
    mount.end();
    assert!(std::fs::read_dir(sandbox.path("home/mounts")).expect("there").next().is_none());
    let mount = Mount::start(&sandbox, "mount tank @m");
    succeeds(&["xfs_repair", "-n", "-f", &mount.file("a").display().to_string()]);
    mount.end();
}
