//! The NBD server over a striped pool on four drives in memory against nbdkit's memory plugin:
//! fio's nbd engine drives both over unix sockets, in turn, with and without checksums (nbdkit has
//! none). Both disks are filled first, so that no read finds a hole.
//!
//! It takes about three minutes. `STRIPEWISE_BENCH_PAIRS` and `STRIPEWISE_BENCH_SECONDS` set the
//! number of pairs and the length of a run, `STRIPEWISE_BENCH_CASE` selects the cases whose name
//! contains it, `STRIPEWISE_BENCH_CHECKSUMS=0` or `1` selects one half of them,
//! `STRIPEWISE_BENCH_CONNECTIONS` sets the number of connections, and `STRIPEWISE_BENCH_CORES` the
//! threads of the server. Server and fio share the
//! machine's cores.

#[path = "../tests/it/kit/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the tests use more of it")]
mod support;

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use stripewise_runtime::process_cpu_ns;
use support::{Served, Wanted, has};

const VOLUME_MIB: u64 = 512;

struct Case {
    name: &'static str,
    pattern: &'static str,
    block: &'static str,
    depth: u32,
}

const CASES: &[Case] = &[
    Case { name: "4k-random-read", pattern: "randread", block: "4k", depth: 32 },
    Case { name: "4k-random-write", pattern: "randwrite", block: "4k", depth: 32 },
    Case { name: "1m-sequential-read", pattern: "read", block: "1m", depth: 16 },
    Case { name: "1m-sequential-write", pattern: "write", block: "1m", depth: 16 },
    // nbdcopy: as many connections as it uses by itself, 256 KiB each request.
    Case { name: "copy-out", pattern: COPY_OUT, block: "256k", depth: 64 },
];

/// Not one of fio's: all of the disk is copied to nowhere, as often as there is time for.
const COPY_OUT: &str = "copy-out";

fn setting(name: &str, default: f64) -> f64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn main() {
    if !has("fio") || !has("nbdkit") || !has("nbdcopy") {
        return;
    }
    let pairs = setting("STRIPEWISE_BENCH_PAIRS", 5.0) as usize;
    let seconds = setting("STRIPEWISE_BENCH_SECONDS", 2.0);
    let wanted = std::env::var("STRIPEWISE_BENCH_CASE").unwrap_or_default();
    println!(
        "case: ratio of our rate to nbdkit's, median of {pairs} pairs of {seconds} s (quartiles); MB/s of each"
    );
    let which = setting("STRIPEWISE_BENCH_CHECKSUMS", 2.0) as usize;
    for checksums in
        [false, true].into_iter().filter(|checksums| which > 1 || usize::from(*checksums) == which)
    {
        println!("{} checksums:", if checksums { "with" } else { "without" });
        compare(checksums, pairs, seconds, &wanted);
    }
}

fn compare(checksums: bool, pairs: usize, seconds: f64, wanted: &str) {
    let ours = Served::start(Wanted {
        layout: "raid0",
        drive_mib: 256,
        volumes: vec![("data", VOLUME_MIB)],
        checksums,
        cores: setting("STRIPEWISE_BENCH_CORES", 1.0) as usize,
        ..Wanted::default()
    });
    let their_socket = ours.folder.path().join("nbdkit.sock");
    let mut theirs = start_nbdkit(&their_socket);
    let our_uri = ours.uri("tank/data");
    let their_uri = format!("nbd+unix:///?socket={}", their_socket.display());
    let fill = Case { name: "fill", pattern: "write", block: "1m", depth: 16 };
    for uri in [&our_uri, &their_uri] {
        run_fio(&fill, uri, None, ours.folder.path());
    }
    for case in CASES.iter().filter(|case| case.name.contains(wanted)) {
        let (mut ratios, mut our_rates, mut their_rates, mut cpu) = (vec![], vec![], vec![], vec![]);
        for pair in 0..pairs {
            let ours_first = pair % 2 == 0;
            let mut measure_ours = || {
                let (begin, before_ns) = (Instant::now(), process_cpu_ns());
                let rate = run_case(case, &our_uri, seconds, ours.folder.path());
                let took_s = if case.pattern == COPY_OUT { begin.elapsed().as_secs_f64() } else { seconds };
                cpu.push((process_cpu_ns() - before_ns) as f64 / took_s / 1e9);
                rate
            };
            let measure_theirs = || run_case(case, &their_uri, seconds, ours.folder.path());
            let (our_rate, their_rate) = if ours_first {
                let our_rate = measure_ours();
                (our_rate, measure_theirs())
            } else {
                let their_rate = measure_theirs();
                (measure_ours(), their_rate)
            };
            ratios.push(our_rate / their_rate);
            our_rates.push(our_rate / 1e6);
            their_rates.push(their_rate / 1e6);
        }
        let [low, middle, high] = quartiles(&mut ratios);
        println!(
            "{}: {middle:.2} ({low:.2} to {high:.2}); {:.0} and {:.0} MB/s; the server used {:.2} of a core",
            case.name,
            quartiles(&mut our_rates)[1],
            quartiles(&mut their_rates)[1],
            quartiles(&mut cpu)[1],
        );
    }
    // It is this process's own child, and has not been waited for.
    let _ = theirs.kill();
    let _ = theirs.wait();
}

fn start_nbdkit(socket: &Path) -> Child {
    let child = Command::new("nbdkit")
        .args(["--foreground", "--exit-with-parent", "--unix"])
        .arg(socket)
        .args(["memory", &format!("{VOLUME_MIB}M")])
        .stdout(Stdio::null())
        .spawn()
        .expect("nbdkit runs");
    let begin = Instant::now();
    // The socket is there before it listens.
    while UnixStream::connect(socket).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(10), "nbdkit does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

/// Bytes per second.
fn run_case(case: &Case, uri: &str, seconds: f64, folder: &Path) -> f64 {
    if case.pattern != COPY_OUT {
        return run_fio(case, uri, Some(seconds), folder);
    }
    let begin = Instant::now();
    let mut bytes = 0;
    while begin.elapsed().as_secs_f64() < seconds {
        let status = Command::new("nbdcopy").args([uri, "null:"]).status().expect("nbdcopy runs");
        assert!(status.success(), "nbdcopy {uri}");
        bytes += VOLUME_MIB << 20;
    }
    bytes as f64 / begin.elapsed().as_secs_f64()
}

/// Bytes per second. Without a time: all of the disk once.
fn run_fio(case: &Case, uri: &str, seconds: Option<f64>, folder: &Path) -> f64 {
    let mut command = Command::new("fio");
    command.current_dir(folder).args([
        "--name=bench",
        "--ioengine=nbd",
        "--thread=1",
        "--output-format=json",
    ]);
    command
        .arg(format!("--uri={uri}"))
        .arg(format!("--rw={}", case.pattern))
        .arg(format!("--bs={}", case.block));
    // Each connection has its part of the depth, and its part of the disk.
    let connections = setting("STRIPEWISE_BENCH_CONNECTIONS", 1.0).max(1.0) as u64;
    let depth = (u64::from(case.depth) / connections).max(1);
    let part_mib = VOLUME_MIB / connections;
    command.arg(format!("--numjobs={connections}")).arg("--group_reporting");
    command.arg(format!("--iodepth={depth}")).arg(format!("--size={part_mib}m"));
    command.arg(format!("--offset_increment={part_mib}m"));
    command.args(["--norandommap", "--randrepeat=0"]);
    if let Some(seconds) = seconds {
        command.arg("--time_based").arg(format!("--runtime={seconds}"));
    }
    let output = command.output().expect("fio runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.find('{').map_or("", |at| &text[at..]);
    let report: Value = serde_json::from_str(json)
        .unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)));
    let job = &report["jobs"][0];
    assert_eq!(job["error"], 0, "{text}");
    let rate = |kind: &str| job[kind]["bw_bytes"].as_f64().unwrap_or(0.0);
    rate("read") + rate("write")
}

/// First quartile, median, third.
fn quartiles(values: &mut [f64]) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    let at =
        |share: f64| values.get(((values.len() - 1) as f64 * share).round() as usize).copied().unwrap_or(0.0);
    [at(0.25), at(0.5), at(0.75)]
}
