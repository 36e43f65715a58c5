//! Outputs of the programs themselves, as far as they are installed.
//!
//! Skipped, with a message, if a program is not.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{figure, is_noted, mb_per_s, names, run_of};

/// Output of a program in a folder, errors included; `None` if it is not installed.
fn output_of(program: &str, words: &[&str], folder: &Path) -> Option<String> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(program);
    let output = command.args(words).env("PATH", path).current_dir(folder).stdin(Stdio::null()).output();
    let Ok(output) = output else {
        eprintln!("skipped: this test needs {program}");
        return None;
    };
    Some(format!("{}{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout)))
}

#[test]
fn every_output_of_fio_gives_the_same_figures() {
    let folder = tempfile::tempdir().expect("a folder");
    let job = [
        "--name=db",
        "--filename=f",
        "--size=2m",
        "--rw=randrw",
        "--bs=4k,8k",
        "--ioengine=psync",
        "--thread",
    ];
    let run = |format: &str, more: &[&str]| {
        let format = format!("--output-format={format}");
        output_of("fio", &[&job[..], &[&format], more].concat(), folder.path())
    };
    for (format, more) in [
        ("json", &[][..]),
        ("json+", &["--iodepth=4"]),
        ("normal", &[]),
        ("normal,json", &["--iodepth=4"]),
        ("terse,json", &[]),
        ("terse", &["--terse-version=2"]),
        ("terse", &["--terse-version=3"]),
        ("terse", &["--terse-version=4"]),
        ("terse", &["--terse-version=5"]),
    ] {
        let Some(text) = run(format, more) else { return };
        let run = run_of(&text);
        assert_eq!(names(&run), ["db read", "db write"], "{format} {more:?}");
        // All its requests are 4 and 8 KiB long, whatever the machine's speed.
        for (name, bytes) in [("db read", 4096.0), ("db write", 8192.0)] {
            let (rate, iops) = (mb_per_s(&run, name), figure(&run, name).iops.expect("a rate"));
            // Some outputs have whole requests and KiB per second, which count on a slow machine.
            let rounding = 1.0 + 1024.0 / bytes;
            let difference = (rate * 1e6 / bytes - iops).abs();
            let is_same = difference <= 0.02 * iops + rounding;
            assert!(is_same, "{format} {more:?} {name}: {rate} MB/s, {iops} IOPS");
            assert!(
                figure(&run, name).latency_us.is_some_and(|latency| latency.mean > Some(0.0)),
                "{format}"
            );
        }
    }
    let interim = ["--time_based", "--runtime=2", "--status-interval=1"];
    let Some(text) = run("json", &interim) else { return };
    let run = run_of(&text);
    assert!(
        is_noted(&run, "interim results left out") && figure(&run, "db read").runs.len() == 1,
        "{:?}",
        run.notes
    );
}

#[test]
fn output_of_sysbench_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let sysbench = |words: &[&str]| {
        let common = ["fileio", "--file-total-size=4M", "--file-num=2", "--events=400", "--time=5"];
        output_of("sysbench", &[&common[..], words].concat(), folder.path())
    };
    if sysbench(&["prepare"]).is_none() {
        return;
    }
    let text = sysbench(&["--file-test-mode=rndrw", "--threads=2", "run"]).expect("it is installed");
    let run = run_of(&text);
    let (read, write) = (figure(&run, "random r/w: read"), figure(&run, "random r/w: write"));
    // Three reads to two writes.
    let ratio = read.mb_per_s.expect("a rate") / write.mb_per_s.expect("a rate");
    assert!((1.4..1.6).contains(&ratio), "{text}");
    assert_eq!((read.workers, read.block_bytes), (Some(2), Some(16_384)));
}
