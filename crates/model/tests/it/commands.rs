//! The commands to build a choice, given to the programs that they are for, as far as these can be
//! asked without drives: mkfs as if (`-N`, `-n`), `zpool create -n` beside a module that is not
//! there, mdadm up to the first drive that it does not find. What is not installed is passed over
//! and said.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use stripewise_model::advise::{Choice, Kind, Need, advise, parse_drives, parse_use};

/// A program, where it is installed.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let found = folders.map(|folder| folder.join(name)).find(|path| path.exists());
    if found.is_none() {
        println!("passed over: {name} is not installed");
    }
    found
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    let is_root = id.is_ok_and(|output| output.stdout == b"0\n");
    if !is_root {
        println!("passed over: only root may ask this program");
    }
    is_root
}

fn need(drives: &str) -> Need {
    Need { risk_per_year: 1.0, ..Need::of(parse_drives(drives).unwrap(), parse_use("backup").unwrap()) }
}

/// Layouts that the drives allow.
fn choices(need: &Need) -> Vec<Choice> {
    advise(need, &|_, _| ()).unwrap().choices
}

fn folder(name: &str) -> tempfile::TempDir {
    tempfile::Builder::new().prefix(name).tempdir().unwrap()
}

fn sparse(path: &Path, bytes: u64) {
    std::fs::File::create(path).unwrap().set_len(bytes).unwrap();
}

fn mkfs_accepts(choices: &[Choice]) {
    let folder = folder("mkfs");
    let file = folder.path().join("sparse");
    sparse(&file, 64 << 30);
    let (xfs, ext4) = (program("mkfs.xfs"), program("mkfs.ext4"));
    let mut asked = Vec::new();
    for line in choices.iter().flat_map(|choice| &choice.commands.mdadm) {
        let mut words = line.split(' ');
        let (program, dry) = match words.next() {
            Some("mkfs.xfs") => (&xfs, "-N"),
            Some("mkfs.ext4") => (&ext4, "-n"),
            _ => continue,
        };
        let Some(path) = program else { continue };
        let arguments: Vec<&str> = words.filter(|word| !word.starts_with("/dev/")).collect();
        if asked.contains(&(path, arguments.clone())) {
            continue;
        }
        let output = Command::new(path).arg(dry).args(&arguments).arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains("not a multiple"), "{line}: {said}");
        asked.push((path, arguments));
    }
    println!("{} different commands of mkfs were tried", asked.len());
}

/// It rejects them for missing drives only.
fn mdadm_accepts(choices: &[Choice]) {
    let Some(mdadm) = program("mdadm").filter(|_| is_root()) else { return };
    let mut tried = 0;
    for line in choices.iter().flat_map(|choice| &choice.commands.mdadm) {
        let Some(words) = line.strip_prefix("mdadm --create ") else { continue };
        // Names that no system has: nothing there is touched.
        let words = words.replace("/dev/", "/dev/of-no-system-");
        let words = words.replacen("/dev/of-no-system-md", "/dev/md/of-no-system-md", 1);
        let output = Command::new(&mdadm).arg("--create").args(words.split(' ')).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let about_drives = said.lines().all(|line| {
            line.starts_with("mdadm: cannot open /dev/of-no-system-")
                && line.ends_with("No such file or directory")
        });
        assert!(about_drives && !said.is_empty(), "{line}: {said}");
        tried += 1;
    }
    assert!(tried > 1, "{tried}");
    println!("{tried} commands of mdadm were tried");
}

/// The programs of ZFS stop where its module is not loaded. In a mount namespace of their own they
/// find what stands for it, which is enough to check a command and plan a pool.
const ZFS_STAND_IN: &str = "set -e\nmount --make-rprivate /\nmkdir dev\nmount -t tmpfs none dev\n\
    mknod dev/null c 1 3\nmknod dev/zfs c 1 3\nmount --bind dev /dev\nmount -t tmpfs none /sys/module\n\
    mkdir /sys/module/zfs\nset +e\n";

fn zpool_plans(choices: &[Choice]) {
    let Some(zpool) = program("zpool").filter(|_| is_root()) else { return };
    let folder = folder("zpool");
    for name in
        (1..=24).map(|number| format!("DRIVE{number}")).chain((1..=2).map(|number| format!("SSD{number}")))
    {
        sparse(&folder.path().join(name), 256 << 20);
    }
    let root = folder.path().to_str().unwrap();
    let mut script = ZFS_STAND_IN.to_owned();
    let mut tried = 0;
    for line in choices.iter().flat_map(|choice| &choice.commands.zpool) {
        let create = &line[line.find("zpool create ").unwrap() + "zpool create ".len()..];
        let words = create.replace("/dev/", &format!("{root}/"));
        writeln!(
            script,
            "{} create -n {words} > said 2>&1 || {{ echo '{words}'; cat said; }}",
            zpool.display()
        )
        .unwrap();
        tried += 1;
    }
    std::fs::write(folder.path().join("script"), script).unwrap();
    let mut command = Command::new("unshare");
    let output = command.args(["--mount", "sh", "script"]).current_dir(folder.path()).output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    if said.contains("unshare failed") || said.contains("mount:") || said.contains("mknod:") {
        println!("passed over: no mount namespace here: {said}");
        return;
    }
    assert!(said.is_empty(), "{said}");
    assert!(tried > 1, "{tried}");
    println!("{tried} pools were planned");
}

fn programs_accept(need: &Need) {
    let choices = choices(need);
    assert!(!choices.is_empty());
    mkfs_accepts(&choices);
    mdadm_accepts(&choices);
    zpool_plans(&choices);
}

fn solid_state_drives(count: usize) -> Option<Kind> {
    Some(parse_drives(&format!("{count}x500GB-ssd")).unwrap().remove(0))
}

#[test]
fn programs_accept_commands_for_every_small_layout() {
    programs_accept(&Need { buy: true, ..need("6x8TB-hdd") });
}

#[test]
fn programs_accept_commands_for_solid_state_drives() {
    programs_accept(&need("8x1TB-ssd"));
}

#[test]
fn programs_accept_commands_with_spare_and_journal() {
    programs_accept(&Need { spares: 1, journal: solid_state_drives(2), ..need("13x8TB-hdd") });
}

#[test]
fn programs_accept_commands_with_one_journal_drive() {
    programs_accept(&Need { journal: solid_state_drives(1), ..need("4x8TB-hdd") });
}

#[test]
fn programs_accept_commands_for_a_wide_layout() {
    programs_accept(&need("24x8TB-hdd"));
}
