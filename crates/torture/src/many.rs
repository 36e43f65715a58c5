//! Independent runs on several threads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use serde::Serialize;

use crate::{Coverage, Failure, Options, run};

/// Progress of the runs.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Number of completed runs.
    pub done: u64,
    /// Total number of runs.
    pub runs: u64,
    /// Number of runs that broke a guarantee.
    pub failed: u64,
}

/// Result of many runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// First seed; the others follow consecutively.
    pub first_seed: u64,
    /// Number of completed runs.
    pub runs: u64,
    /// Broken guarantees, by seed.
    pub failures: Vec<Failure>,
    /// Counts of the events and actions of all runs.
    pub coverage: Coverage,
}

/// Runs `runs` seeds from `first` on, on `threads` threads. `progress` is called after each run and
/// can stop the runs by returning `false`.
pub fn run_many(
    first: u64,
    runs: u64,
    threads: usize,
    options: &Options,
    mut progress: impl FnMut(Progress) -> bool,
) -> Summary {
    let next = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    let mut summary = Summary { first_seed: first, ..Summary::default() };
    std::thread::scope(|scope| {
        let (sender, reports) = mpsc::channel();
        for _ in 0..threads.max(1) {
            let (sender, next, is_over) = (sender.clone(), &next, &is_over);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= runs || is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    if sender.send(run(first.wrapping_add(number), options)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut failed = 0;
        for report in reports {
            summary.runs += 1;
            summary.coverage.add(&report.coverage);
            failed += u64::from(!report.failures.is_empty());
            summary.failures.extend(report.failures);
            if !progress(Progress { done: summary.runs, runs, failed }) {
                is_over.store(true, Ordering::Relaxed);
            }
        }
    });
    summary.failures.sort_by(|a, b| (a.seed, &a.promise, &a.detail).cmp(&(b.seed, &b.promise, &b.detail)));
    summary
}
