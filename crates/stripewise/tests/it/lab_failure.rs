//! `lab run --scenario failure` on foreign storage: btrfs RAID 1 on loop devices, one of which
//! shrinks in use.
//!
//! Skipped without root, loop devices or btrfs. File systems are unmounted and devices detached in
//! any case.

use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::kit::Sandbox;
use crate::kit::programs::{is_possible, program, succeeds};

/// btrfs RAID 1 on two loop devices, and a third device.
struct Btrfs {
    mounted_at: String,
    devices: Vec<String>,
}

impl Btrfs {
    fn new(sandbox: &Sandbox) -> Self {
        let at = sandbox.path("mounted");
        std::fs::create_dir(&at).expect("made");
        let mut made = Self { mounted_at: at.display().to_string(), devices: Vec::new() };
        for name in ["first", "second", "third"] {
            let path = sandbox.path(name);
            // Sparse files. btrfs needs free space to replace a drive.
            std::fs::File::create(&path).and_then(|file| file.set_len(1 << 30)).expect("made");
            let device = succeeds(&["losetup", "--find", "--show", text(&path)]);
            made.devices.push(device.trim().to_owned());
        }
        let [first, second, _] = made.devices.as_slice() else { panic!("three devices") };
        succeeds(&["mkfs.btrfs", "-q", "-f", "-d", "raid1", "-m", "raid1", first, second]);
        succeeds(&["mount", first, &made.mounted_at]);
        made
    }
}

impl Drop for Btrfs {
    fn drop(&mut self) {
        // A running replacement would keep it mounted.
        program(&["btrfs", "replace", "cancel", &self.mounted_at]);
        program(&["umount", &self.mounted_at]);
        for device in &self.devices {
            program(&["losetup", "--detach", device]);
        }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[test]
fn btrfs_rebuilds_a_lost_drive_without_data_loss() {
    if !is_possible(&["mkfs.btrfs", "btrfs", "losetup", "truncate", "mount", "umount"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let btrfs = Btrfs::new(&sandbox);
    let [_, second, third] = btrfs.devices.as_slice() else { panic!("three devices") };
    let (at, file) = (&btrfs.mounted_at, sandbox.path("second"));
    // Beyond its new end, the device fails all reads and writes.
    let hooks = format!(
        "[fail]\ncommand = 'truncate -s 16M {} && losetup -c {second}'\n\
         [replace]\ncommand = 'btrfs replace start -f -r {second} {third} {at}'\n\
         [rebuild-done]\nevery_seconds = 0.05\nrebuild_limit_seconds = 60\n\
         command = '''case \"$(btrfs replace status -1 {at})\" in *finished*) exit 0 ;; *cancel*) exit 2 ;; *) exit 1 ;; esac'''\n",
        file.display()
    );
    std::fs::write(sandbox.path("hooks.toml"), hooks).expect("written");
    let profile = "name = \"mixed\"\nruns = 1\nseconds = 0.3\nverify = true\n[[measurement]]\nname = \"mixed\"\n\
                   read_percents = [50]\npattern = \"random\"\nblocks = [\"64KiB\"]\ndepths = [4]\n";
    std::fs::write(sandbox.path("mixed.toml"), profile).expect("written");
    let run = sandbox
        .json("lab run @mounted --profile @mixed.toml --size 48MiB --scenario failure --hooks @hooks.toml");
    let notes = run["notes"].to_string();
    assert!(notes.contains("50331648 bytes were read back and compared: none differ"), "{run}");
    let figures = run["measurements"].as_array().expect("a list");
    for state in ["normal", "degraded", "recovered"] {
        let name = format!("{state}/mixed");
        let figure = figures.iter().find(|one| one["name"] == name.as_str()).expect(state);
        assert!(figure["mb_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{figure}");
        assert_eq!(figure["badges"]["no_errors"], true, "{figure}");
    }
    let marks: Vec<&str> = run["timeline"]["markers"]
        .as_array()
        .expect("markers")
        .iter()
        .filter_map(|marker| marker["what"].as_str())
        .collect();
    assert!(marks.contains(&"rebuilt") && marks.contains(&"recovered"), "{marks:?}");
    let status = succeeds(&["btrfs", "filesystem", "show", at]);
    assert!(status.contains(third.as_str()) && !status.contains(second.as_str()), "{status}");
    assert!(
        !sandbox.path("mounted").read_dir().expect("the folder").any(|_| true),
        "the file it made is gone"
    );
}

/// A file has no drive to lose: this only checks that the hooks run under fio's load, and that
/// every state is measured.
#[test]
fn fio_measures_every_state_while_hooks_run() {
    if !crate::kit::programs::are_here(&["fio"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let said = sandbox.path("said");
    let hooks = format!(
        "[fail]\ncommand = 'sleep 0.6; echo fail >> {0}'\n[replace]\ncommand = 'echo replace >> {0}'\n\
         [rebuild-done]\nevery_seconds = 0.05\nrebuild_limit_seconds = 60\n\
         command = 'test \"$(wc -l < {0})\" -gt 5 || {{ echo asked >> {0}; exit 1; }}'\n",
        said.display()
    );
    std::fs::write(sandbox.path("hooks.toml"), hooks).expect("written");
    let profile = "name = \"small\"\nruns = 1\nseconds = 0.2\n[[measurement]]\nname = \"small\"\n\
                   read_percents = [50]\npattern = \"random\"\nblocks = [\"16KiB\"]\ndepths = [4]\n";
    std::fs::write(sandbox.path("small.toml"), profile).expect("written");
    std::fs::File::create(sandbox.path("disk")).and_then(|file| file.set_len(16 << 20)).expect("made");
    let run = sandbox.json(
        "lab run @disk --force --driver fio --profile @small.toml --size 16MiB --scenario failure --hooks @hooks.toml",
    );
    let text = std::fs::read_to_string(&said).expect("hooks ran");
    assert!(text.starts_with("fail\nreplace\nasked\n"), "{text}");
    let figures = run["measurements"].as_array().expect("a list");
    for state in ["normal", "degraded", "recovered"] {
        let name = format!("{state}/small");
        let figure = figures.iter().find(|one| one["name"] == name.as_str()).expect(state);
        assert!(figure["mb_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{figure}");
    }
    let marks = run["timeline"]["markers"].as_array().expect("markers");
    let at = |what: &str| {
        let mark = marks.iter().find(|mark| mark["what"] == what).unwrap_or_else(|| panic!("{what}: {run}"));
        mark["seconds"].as_f64().expect("a time")
    };
    assert!(at("fail is done") >= at("fail begins") + 0.6 && at("recovered") >= at("rebuilt"));
    let rates = run["timeline"]["mb_per_s"].as_array().expect("rates");
    assert!(rates.iter().any(|rate| rate.as_f64().is_some_and(|rate| rate > 0.0)), "{run}");
}

#[test]
fn mounted_devices_are_refused_even_with_force() {
    if !is_possible(&["mkfs.ext4", "losetup", "mount", "umount", "blockdev"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let (file, at) = (sandbox.path("disk"), sandbox.path("mounted"));
    std::fs::create_dir(&at).expect("made");
    std::fs::File::create(&file).and_then(|file| file.set_len(32 << 20)).expect("made");
    let device = succeeds(&["losetup", "--find", "--show", text(&file)]).trim().to_owned();
    let mut made = Btrfs { mounted_at: text(&at).to_owned(), devices: vec![device.clone()] };
    let refused = |target: &str, part: &str| {
        let answer = sandbox.run(&format!("lab run {target} --profile atto --seconds 0.05 --force"));
        assert!(answer.code == 1 && answer.err.contains(part), "{target}: {}", answer.err);
    };
    refused("@disk", "is a loop device on it");
    succeeds(&["mkfs.ext4", "-q", &device]);
    refused(&device, "holds an ext4 file system");
    succeeds(&["mount", &device, text(&at)]);
    std::fs::write(at.join("letter"), "dear friend").expect("written");
    refused(&device, "in use");
    assert_eq!(std::fs::read_to_string(at.join("letter")).expect("there"), "dear friend");
    succeeds(&["umount", text(&at)]);
    assert!(program(&["e2fsck", "-fn", &device]).status.success(), "nothing was written");
    let md = 0xa92b_4efcu32.to_le_bytes();
    let pool = 0x00ba_b10c_u64.to_le_bytes();
    for (offset, bytes, part) in [
        (4096, &md[..], "a member of an md array"),
        (128 << 10, &pool[..], "a member of a ZFS pool"),
        (512, &b"LABELONE................LVM2 001"[..], "an LVM physical volume"),
    ] {
        let disk = std::fs::OpenOptions::new().write(true).open(&file).expect("the file");
        // Remains of an earlier run are removed.
        disk.set_len(0).and_then(|()| disk.set_len(32 << 20)).expect("empty");
        disk.write_all_at(bytes, offset).expect("written");
        succeeds(&["blockdev", "--flushbufs", &device]);
        refused(&device, part);
    }
    succeeds(&["mkfs.ext4", "-q", "-F", &device]);
    succeeds(&["losetup", "--detach", &device]);
    made.devices.clear();
    // The file itself now holds a file system: it is overwritten only with --force.
    let answer = sandbox.run("lab run @disk --profile atto --seconds 0.05");
    assert!(
        answer.code == 1 && answer.err.contains("ext4") && answer.err.contains("--force"),
        "{}",
        answer.err
    );
}
