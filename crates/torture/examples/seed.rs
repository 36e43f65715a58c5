//! Runs the seeds that are given, or ranges of them, and prints what was broken, and what was tried
//! in all of them together: `seed 7 100..200`; `--trace` shows what happened in each as well,
//! `--focus=NAME` leads one kind of lives, `--mutation=NAME` breaks a rule of the engine. Its exit
//! code is 1 if any of them failed.
//! Builds in less time than the command line, for work on the engine.

use std::process::ExitCode;

use stripewise_torture::{Coverage, Focus, Mutation, Options, run};

fn main() -> ExitCode {
    let (options, seeds): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let value = |name: &str| options.iter().find_map(|option| option.strip_prefix(name));
    let focus = value("--focus=").map(|name| Focus::named(name).expect("a focus"));
    let mutation = value("--mutation=").map(|name| Mutation::named(name).expect("a mutation"));
    let keep_log = value("--trace").is_some();
    let options = Options { keep_log, focus, mutation, ..Options::default() };
    let (mut runs, mut failed) = (0, 0);
    let mut coverage = Coverage::default();
    for seed in seeds.iter().flat_map(|argument| range(argument)) {
        let report = run(seed, &options);
        report.log.iter().for_each(|line| println!("{line}"));
        for failure in &report.failures {
            println!("{seed} {}: {}", failure.promise, failure.detail);
        }
        coverage.add(&report.coverage);
        runs += 1;
        failed += u64::from(!report.failures.is_empty());
    }
    println!("{failed} of {runs} failed; {coverage:?}");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// `7`, or `100..200` without the last.
fn range(argument: &str) -> std::ops::Range<u64> {
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("`{text}` is no seed"));
    match argument.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => number(argument)..number(argument) + 1,
    }
}
