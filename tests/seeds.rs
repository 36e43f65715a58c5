//! Seeds of a randomised test: one set of rules, and of environment variables, for all of them.
//!
//! A sweep runs a fixed range of seeds, the same in every run and on every machine. Where they take
//! several seconds the range is divided among several tests, which run side by side.
//!
//! - `STRIPEWISE_TEST_SEED=n` runs seed n alone: this is how a failure is repeated.
//! - `STRIPEWISE_TEST_SECONDS=s` lets the test with the first seeds go on with others for s seconds
//!   (`make soak`).

use std::ops::Range;
use std::time::{Duration, Instant};

/// First of the seeds that a long run goes on with: in no range of a usual run.
const FIRST_BEYOND: u64 = 100_000;

/// The seeds of one test, as an iterator. It prints how many were run when it is dropped.
pub(crate) struct Sweep {
    range: Range<u64>,
    /// Goes on beyond the range until then.
    until: Option<Instant>,
    runs: u64,
}

/// An environment variable as a number.
fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// The seeds of a range, unless the environment asks for others.
pub(crate) fn sweep(range: Range<u64>) -> Sweep {
    if let Some(seed) = variable("STRIPEWISE_TEST_SEED") {
        return Sweep { range: seed..seed + 1, until: None, runs: 0 };
    }
    let seconds = variable("STRIPEWISE_TEST_SECONDS").filter(|_| range.start <= 1);
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    Sweep { range, until, runs: 0 }
}

impl Iterator for Sweep {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let usual = self.range.end - self.range.start;
        let seed = match self.runs.checked_sub(usual) {
            None => self.range.start + self.runs,
            Some(_) if self.until.is_none_or(|until| Instant::now() >= until) => return None,
            Some(beyond) => FIRST_BEYOND + beyond,
        };
        println!("seed {seed}");
        self.runs += 1;
        Some(seed)
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        println!("{} seeds of {:?} and beyond", self.runs, self.range);
    }
}
