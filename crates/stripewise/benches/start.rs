//! Time from the start of `stripewise serve` until it is ready, with a pool of four drives with
//! data: after an orderly shutdown, and after a kill -9. The drives are files on the disk of the
//! build; most of the time is their flushes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const RUNS: usize = 15;
/// Target.
const GOAL: Duration = Duration::from_millis(100);
const DRIVE: &str = "256MiB";
const VOLUME: &str = "400MiB";
const WRITTEN_BYTES: usize = 64 << 20;

fn command(folder: &Path, words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stripewise"));
    command.args(words.split_whitespace()).current_dir(folder).env("STRIPEWISE_HOME", folder.join("home"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

fn run(folder: &Path, words: &str) {
    assert!(command(folder, words).status().expect("it starts").success(), "{words}");
}

fn write(folder: &Path) {
    let mut child = command(folder, "volume write tank/a").stdin(Stdio::piped()).spawn().expect("it starts");
    let bytes: Vec<u8> = (0..WRITTEN_BYTES / 8).flat_map(|index| (index as u64).to_le_bytes()).collect();
    child.stdin.take().expect("piped").write_all(&bytes).expect("taken");
    assert!(child.wait().expect("it ends").success());
}

/// A daemon, and how long it took to be ready.
fn start(folder: &Path) -> (Child, Duration) {
    let begin = Instant::now();
    let mut child = command(folder, "serve --nbd unix:nbd.sock --http 0").spawn().expect("it starts");
    let mut first = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut first).expect("text");
    assert_eq!(first, "ready\n");
    (child, begin.elapsed())
}

fn end(mut child: Child, signal: &str) {
    let told = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(told.expect("kill runs").success());
    child.wait().expect("it ends");
}

fn main() {
    // `cargo test --benches` only asks whether it can be built.
    if !std::env::args().any(|word| word == "--bench") {
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let folder = folder.path();
    run(folder, &format!("drive make d --count 4 --size {DRIVE}"));
    run(folder, "pool create tank d/drive0.img d/drive1.img d/drive2.img d/drive3.img");
    run(folder, &format!("volume create tank/a --layout raid5 --size {VOLUME}"));
    write(folder);
    println!(
        "serve, from its start to ready: a pool of four drives of {DRIVE}, NBD and HTTP, {RUNS} starts each"
    );
    for (what, signal) in [("ended in order", "-TERM"), ("killed", "-KILL")] {
        end(start(folder).0, signal);
        let mut times: Vec<Duration> = (0..RUNS)
            .map(|_| {
                let (child, time) = start(folder);
                end(child, signal);
                time
            })
            .collect();
        times.sort_unstable();
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        println!(
            "  the one before was {what}: {:.1} ms ({:.1}..{:.1}); to reach: {:.0}",
            ms(times[RUNS / 2]),
            ms(times[0]),
            ms(times[RUNS - 1]),
            ms(GOAL)
        );
    }
}
