//! fio with verification, over NBD and on files with direct I/O, while drives are pulled, replaced
//! and rebuilt.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use crate::drives::{Alarm, Drives};
use crate::kit::Sandbox;
use crate::kit::daemon::Daemon;
use crate::kit::mount::Mount;
use crate::kit::programs::{are_here, is_possible};
use crate::span::{Running, Span};

const MIB: u64 = 1 << 20;
/// Size of each volume, in a long and in a quick run.
const SIZE: u64 = 96 * MIB;
const QUICK_SIZE: u64 = 24 * MIB;
const VOLUMES: [(&str, &str); 2] = [("a", "raid5"), ("b", "raid10")];

/// Jobs: random blocks that are soon verified, and sequential writes, each in its half.
fn mixed(target: &[String], span: Span) -> Vec<String> {
    let half = size(span) / 2;
    let mut words = common(target);
    words.extend(["--time_based", "--verify_backlog=512"].map(str::to_owned));
    words.push(format!("--runtime={}", span.seconds_left()));
    for (name, kind, block, at) in [("small", "randwrite", "4k", 0), ("large", "write", "256k", half)] {
        words.push(format!("--name={name}"));
        words.extend([format!("--rw={kind}"), format!("--bs={block}"), "--iodepth=16".to_owned()]);
        words.extend([format!("--offset={at}"), format!("--size={half}")]);
    }
    words
}

/// Job that writes every block once; with `--verify_only` it reads them back.
fn all_of_it(target: &[String], span: Span) -> Vec<String> {
    let mut words = common(target);
    words.extend(["--name=all", "--rw=randwrite", "--bs=32k", "--iodepth=16"].map(str::to_owned));
    words.push(format!("--size={}", size(span)));
    words
}

fn common(target: &[String]) -> Vec<String> {
    let same = [
        "--verify=crc32c",
        "--verify_fatal=1",
        "--randrepeat=1",
        "--group_reporting",
        "--output-format=terse",
    ];
    target.iter().cloned().chain(same.map(str::to_owned)).collect()
}

fn start(words: &[String], log: &Path, span: Span) -> Running {
    let said = File::create(log).expect("made");
    let mut fio = Command::new("fio");
    // fio writes its verification state to its working directory.
    fio.args(words).current_dir(log.parent().expect("in a folder")).stdin(Stdio::null());
    fio.stdout(said.try_clone().expect("another handle")).stderr(said);
    Running::start(&mut fio, span.left())
}

/// `target` returns fio's arguments for a volume.
fn finds_what_it_wrote(
    sandbox: &Sandbox,
    drives: &mut Drives<'_>,
    span: Span,
    target: impl Fn(&str) -> Vec<String>,
) {
    let all_is_well = AtomicBool::new(true);
    std::thread::scope(|scope| {
        for (volume, layout) in VOLUMES {
            let (words, all_is_well) = (mixed(&target(volume), span), &all_is_well);
            scope.spawn(move || {
                let _alarm = Alarm(all_is_well);
                let log = sandbox.path(&format!("{layout}.log"));
                start(&words, &log, span).expect_success(&log);
            });
        }
        let _alarm = Alarm(&all_is_well);
        drives.come_and_go(span, &all_is_well);
    });
    // Written with a drive missing, read during the rebuild and after it.
    let gone = drives.pull();
    let log = sandbox.path("all.log");
    for (volume, _) in VOLUMES {
        start(&all_of_it(&target(volume), span), &log, span).expect_success(&log);
    }
    drives.replace(&gone);
    for _ in 0..2 {
        for (volume, _) in VOLUMES {
            let mut words = all_of_it(&target(volume), span);
            words.push("--verify_only=1".to_owned());
            start(&words, &log, span).expect_success(&log);
        }
        drives.until_whole();
    }
}

fn size(span: Span) -> u64 {
    if span.is_long() { SIZE } else { QUICK_SIZE }
}

fn volumes(sandbox: &Sandbox, span: Span) {
    for (volume, layout) in VOLUMES {
        sandbox.ok(&format!("volume create tank/{volume} --layout {layout} --size {}", size(span)));
    }
}

fn all_is_right(sandbox: &Sandbox, drives: &Drives<'_>, span: Span, way: &str) {
    let scrub = sandbox.ok("pool scrub tank --wait");
    assert_eq!(scrub.text().matches("no errors found").count(), 2, "{}", scrub.text());
    println!(
        "fio {way}: {} s; {} drives replaced, {} offline and back",
        span.elapsed().as_secs(),
        drives.replaced,
        drives.offline
    );
}

#[test]
fn fio_verifies_its_writes_over_nbd() {
    if !are_here(&["fio"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let mut drives = Drives::pool(&sandbox, 4, "128MiB");
    volumes(&sandbox, Span::begin());
    let daemon = Daemon::start(&sandbox, "--nbd unix:nbd.sock");
    let socket = sandbox.text("nbd.sock");
    let span = Span::begin();
    finds_what_it_wrote(&sandbox, &mut drives, span, |volume| {
        vec!["--ioengine=nbd".to_owned(), format!("--uri=nbd+unix:///tank/{volume}?socket={socket}")]
    });
    all_is_right(&sandbox, &drives, span, "over NBD");
    daemon.end();
}

#[test]
fn fio_verifies_its_writes_on_mounted_files() {
    if !is_possible(&["fio"]) {
        return;
    }
    let sandbox = Sandbox::new();
    let mut drives = Drives::pool(&sandbox, 4, "128MiB");
    volumes(&sandbox, Span::begin());
    let mount = Mount::start(&sandbox, "mount tank @m");
    let span = Span::begin();
    finds_what_it_wrote(&sandbox, &mut drives, span, |volume| {
        let file = mount.file(volume).display().to_string();
        vec!["--ioengine=libaio".to_owned(), "--direct=1".to_owned(), format!("--filename={file}")]
    });
    all_is_right(&sandbox, &drives, span, "past the page cache, through FUSE");
    mount.end();
}
