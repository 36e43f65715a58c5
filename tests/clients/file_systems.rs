//! ext4 and XFS on loop devices on volumes, under fsx, stress-ng's file system stressors (both
//! verify what they read) and trees of files with a copy in memory, while drives are pulled,
//! replaced, rebuilt, taken offline and brought back. Then the file system's own checker runs, and
//! every file and every stripe is compared.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::drives::{Alarm, Drives};
use crate::kit::Sandbox;
use crate::kit::mount::Mount;
use crate::kit::programs::{are_here, is_possible, search_path, succeeds};
use crate::span::{Running, Span};
use crate::trees::Tree;

/// Options of fsx: all operations that Linux supports.
const FSX: &str = "flen = 2097152
[opsize]
max = 131072
[weights]
close_open = 1
read = 10
write = 10
mapread = 5
mapwrite = 5
invalidate = 1
truncate = 3
fsync = 2
fdatasync = 2
punch_hole = 3
posix_fallocate = 1
sendfile = 1
posix_fadvise = 1
copy_file_range = 2
";
/// Operations per run of fsx: few enough to end in time.
const FSX_CHANGES: u32 = 300;
/// Stressors of stress-ng, one process each, similar to xfstests' fsstress; the files are small,
/// since there are many.
const STRESSORS: &str = "--hdd 1 --hdd-bytes 8M --hdd-opts wr-rnd,rd-rnd,fdatasync --iomix 1 --iomix-bytes 8M --fallocate 1 \
     --fallocate-bytes 8M --sync-file 1 --sync-file-bytes 4M --rename 1 --dir 1 --link 1 \
     --symlink 1 --utime 1 --xattr 1 --dentry 1 --dentries 200";

/// Interval between two runs of fstrim.
const TRIM_EVERY: Duration = Duration::from_millis(500);

/// Maximum wait of a file operation: a few times the timeout of a drive, 30 s, on a busy host.
const HANG: Duration = Duration::from_secs(120);

/// A file system and its volume.
struct Wanted {
    kind: &'static str,
    layout: &'static str,
    drive_size: &'static str,
    size: &'static str,
    /// Checker of the file system, in read-only mode.
    check: &'static [&'static str],
}

fn keeps_its_files(wanted: &Wanted) {
    let maker = format!("mkfs.{}", wanted.kind);
    if !is_possible(&[&maker, wanted.check[0], "losetup"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let mut drives = Drives::pool(&sandbox, 4, wanted.drive_size);
    sandbox.ok(&format!("volume create tank/a --layout {} --size {}", wanted.layout, wanted.size));
    let mount_words = format!("mount tank/a @m --fs {}", wanted.kind);
    let mount = Mount::start(&sandbox, &mount_words);
    let folder = mount.folder.clone();
    let span = Span::begin();
    let (goes_on, all_is_well) = (AtomicBool::new(true), AtomicBool::new(true));
    let mut trees: Vec<Tree> =
        (0..2).map(|seed| Tree::new(&folder.join(format!("tree{seed}")), seed)).collect();
    let (mut fsx_runs, mut trims) = (0, 0);
    std::thread::scope(|scope| {
        for tree in &mut trees {
            scope.spawn(|| {
                let _alarm = Alarm(&all_is_well);
                while goes_on.load(Ordering::Relaxed) && all_is_well.load(Ordering::Relaxed) {
                    tree.step();
                }
            });
        }
        scope.spawn(|| {
            let _alarm = Alarm(&all_is_well);
            fsx_runs = run_fsx(&sandbox, &folder, &goes_on, &all_is_well);
        });
        scope.spawn(|| {
            let _alarm = Alarm(&all_is_well);
            run_stressors(&sandbox, &folder, span);
        });
        scope.spawn(|| {
            let _alarm = Alarm(&all_is_well);
            trims = trim(&folder, &goes_on, &all_is_well);
        });
        let _alarm = Alarm(&all_is_well);
        // Also after a failure: the other threads must not wait forever.
        let _end = EndOf(&goes_on);
        drives.come_and_go(span, &all_is_well);
    });
    trees.iter().for_each(Tree::expect_all);
    let slowest = trees.iter().map(|tree| tree.slowest).max().unwrap_or_default();
    assert!(slowest.0 < HANG, "a file operation took {slowest:?}");
    mount.end();

    let mount = Mount::start(&sandbox, "mount tank @m");
    let file = mount.file("a").display().to_string();
    succeeds(&[wanted.check, &[file.as_str()]].concat());
    mount.end();
    let mount = Mount::start(&sandbox, &mount_words);
    trees.iter().for_each(Tree::expect_all);
    mount.end();
    let scrub = sandbox.ok("pool scrub tank --wait");
    assert!(scrub.text().contains("no errors found"), "{}", scrub.text());
    println!(
        "{} on {}: {} s; {} drives replaced, {} offline and back; {} changes in trees (slowest {} ms, {}), {fsx_runs} x {FSX_CHANGES} of fsx, free space \
         trimmed {trims} times",
        wanted.kind,
        wanted.layout,
        span.elapsed().as_secs(),
        drives.replaced,
        drives.offline,
        trees.iter().map(|tree| tree.changes).sum::<u64>(),
        slowest.0.as_millis(),
        slowest.1,
    );
}

/// Signals the end to the other threads on drop.
struct EndOf<'a>(&'a AtomicBool);

impl Drop for EndOf<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Runs fsx repeatedly. Returns the number of runs.
fn run_fsx(sandbox: &Sandbox, folder: &Path, goes_on: &AtomicBool, all_is_well: &AtomicBool) -> u64 {
    if !are_here(&["fsx"]) {
        return 0;
    }
    let (config, log) = (sandbox.path("fsx.toml"), sandbox.path("fsx.log"));
    std::fs::write(&config, FSX).expect("written");
    let mut seed = 0;
    while goes_on.load(Ordering::Relaxed) && all_is_well.load(Ordering::Relaxed) {
        seed += 1;
        let mut fsx = Command::new("fsx");
        fsx.arg("-f").arg(&config).args(["-N", &FSX_CHANGES.to_string(), "-S", &seed.to_string(), "-P"]);
        fsx.arg(sandbox.path("")).arg(folder.join("fsx"));
        let said = File::create(&log).expect("made");
        fsx.stdout(said.try_clone().expect("another handle")).stderr(said);
        Running::start(&mut fsx, Duration::ZERO).expect_success(&log);
    }
    seed
}

/// Runs fstrim repeatedly. Returns the number of runs.
fn trim(folder: &Path, goes_on: &AtomicBool, all_is_well: &AtomicBool) -> u64 {
    if !are_here(&["fstrim"]) {
        return 0;
    }
    let mut count = 0;
    while goes_on.load(Ordering::Relaxed) && all_is_well.load(Ordering::Relaxed) {
        succeeds(&["fstrim", &folder.display().to_string()]);
        count += 1;
        std::thread::sleep(TRIM_EVERY);
    }
    count
}

fn run_stressors(sandbox: &Sandbox, folder: &Path, span: Span) {
    if !are_here(&["stress-ng"]) {
        return;
    }
    let (at, log) = (folder.join("stress"), sandbox.path("stress.log"));
    std::fs::create_dir(&at).expect("made");
    let mut stress = Command::new("stress-ng");
    stress.env("PATH", search_path()).arg("--temp-path").arg(&at);
    stress.args(["--verify", "--oomable", "--timeout", &span.seconds_left().to_string()]);
    stress.args(STRESSORS.split_whitespace());
    let said = File::create(&log).expect("made");
    stress.stdin(Stdio::null()).stdout(said.try_clone().expect("another handle")).stderr(said);
    Running::start(&mut stress, span.left()).expect_success(&log);
}

#[test]
fn ext4_on_raid5_keeps_its_files() {
    keeps_its_files(&Wanted {
        kind: "ext4",
        layout: "raid5",
        drive_size: "160MiB",
        size: "320MiB",
        check: &["e2fsck", "-f", "-n"],
    });
}

#[test]
fn xfs_on_raid10_keeps_its_files() {
    keeps_its_files(&Wanted {
        kind: "xfs",
        layout: "raid10",
        drive_size: "224MiB",
        size: "320MiB",
        check: &["xfs_repair", "-n", "-f"],
    });
}
