//! The tools that study 001 used, as packaged by Debian, beside our methods of the same names on
//! the same directory.
//!
//! Skipped, with a message, if a tool is not installed.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use stripewise_lab::files::{Bonnie, Folder, PostMark, Unwatched, run_bonnie, run_postmark};
use stripewise_lab::import::import;
use stripewise_lab::record::MeasurementRecord;
use stripewise_lab::statistics::rank_sum_p;
use stripewise_runtime::RealExecutor;

const FILES: u64 = 200;
const TRANSACTIONS: u64 = 500;
const SEEDS: u64 = 8;
/// Names of counts, and their labels in the tool's report.
const COUNTS: [(&str, &str); 6] = [
    ("created_mixed", "Mixed with transactions"),
    ("files_read", "read ("),
    ("files_appended", "appended ("),
    ("deleted", "deleted ("),
    ("data_read", "bytes read ("),
    ("data_written", "bytes written ("),
];

/// Output of the program for an input; `None` if it is not installed.
fn output_of(program: &str, words: &[&str], input: &str) -> Option<String> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(program);
    command.args(words).env("PATH", path).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else {
        eprintln!("skipped: this test needs {program}");
        return None;
    };
    child.stdin.take().expect("asked for").write_all(input.as_bytes()).expect("it listens");
    let output = child.wait_with_output().expect("it ends");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Files and bytes as counted by PostMark.
fn counts_of_report(report: &str) -> Vec<f64> {
    let count = |part: &str| {
        let line =
            report.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {report}"));
        let text = line.rsplit_once(':').map_or(line, |(_, text)| text).trim();
        let (value, unit) = text.split_once(' ').expect("a number and what it is");
        let scale = match unit {
            _ if unit.starts_with("kilobytes") => 1024.0,
            _ if unit.starts_with("megabytes") => 1024.0 * 1024.0,
            _ => 1.0,
        };
        scale * value.parse::<f64>().expect("a number")
    };
    COUNTS.iter().map(|(_, part)| count(part)).collect()
}

/// The same counts of our figures, from rates and times.
fn counts_of_figures(figures: &[MeasurementRecord]) -> Vec<f64> {
    let value = |name: &str| figures.iter().find(|figure| figure.name == name).expect(name).runs[0];
    let (total, mixed) = (value("total_time"), TRANSACTIONS as f64 / value("transactions"));
    let count = |name: &str| match name {
        "deleted" => value(name) * total,
        "data_read" | "data_written" => value(name) * total * 1e6,
        _ => value(name) * mixed,
    };
    COUNTS.iter().map(|(name, _)| count(name)).collect()
}

fn our_counts(folder: &Path, seed: u64) -> Vec<f64> {
    let executor = RealExecutor::new().expect("io_uring");
    let files = Folder::new(folder, false).expect("a folder");
    let asked = PostMark { files: FILES, transactions: TRANSACTIONS, seed, ..small() };
    let figures = executor.block_on(run_postmark(&executor.context(), &files, &asked, &Unwatched));
    counts_of_figures(&figures.expect("it runs"))
}

fn small() -> PostMark {
    PostMark { least_bytes: 500, most_bytes: 9_770, ..PostMark::default() }
}

#[test]
fn our_postmark_does_the_same_work_as_the_original() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for seed in 1..=SEEDS {
        let input = format!(
            "set location {}\nset number {FILES}\nset transactions {TRANSACTIONS}\nset size 500 9770\n\
             set seed {seed}\nrun\nquit\n",
            folder.path().display()
        );
        let Some(report) = output_of("postmark", &[], &input) else { return };
        assert_eq!(import(report.as_bytes()).expect("its report is read")[0].measurements.len(), 12);
        theirs.push(counts_of_report(&report));
        ours.push(our_counts(folder.path(), seed));
    }
    for (at, (name, _)) in COUNTS.iter().enumerate() {
        let column = |rows: &[Vec<f64>]| -> Vec<f64> { rows.iter().map(|row| row[at]).collect() };
        let (theirs, ours) = (column(&theirs), column(&ours));
        let p = rank_sum_p(&theirs, &ours);
        assert!(p > 0.002, "{name}: {p}; postmark {theirs:?}, ours {ours:?}");
    }
}

#[test]
fn ours_and_bonnie_plus_plus_report_the_same_figures() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path().to_str().expect("text");
    let words = ["-d", at, "-s", "8", "-r", "4", "-n", "0", "-u", "root", "-q"];
    let Some(line) = output_of("bonnie++", &words, "") else { return };
    if line.is_empty() {
        eprintln!("skipped: bonnie++ switches to a user, which needs root");
        return;
    }
    let theirs = import(line.as_bytes()).expect("its line is read").remove(0).measurements;
    let executor = RealExecutor::new().expect("io_uring");
    let files = Folder::new(folder.path(), true).expect("a folder");
    let asked = Bonnie { file_bytes: 8 << 20, seeks: 400, ..Bonnie::default() };
    let ours = executor.block_on(run_bonnie(&executor.context(), &files, &asked, &|| Some(0.0), &Unwatched));
    let ours = ours.expect("it runs");
    let blocks = ["block_write", "rewrite", "block_read", "seeks"];
    for name in blocks {
        let found = |figures: &[MeasurementRecord]| figures.iter().find(|one| one.name == name).cloned();
        // bonnie++ may finish a file of 8 MiB too fast to time it: its line then has pluses.
        let Some(theirs) = found(&theirs) else { continue };
        let ours = found(&ours).expect(name);
        assert_eq!(theirs.unit, ours.unit, "{name}");
        assert!(theirs.runs[0] > 0.0 && ours.runs[0] > 0.0, "{name}: {theirs:?} {ours:?}");
    }
}
