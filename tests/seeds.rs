//! Which seeds a randomised test runs: one set of rules, and of environment variables, for all of
//! them.
//!
//! A sweep runs its usual seeds, in order from 1, the same in every run. On a slow machine it stops
//! early: after four seconds, once it has run the fewest seeds that are worth running.
//!
//! - `STRIPEWISE_TEST_SEED=n` runs seed n alone: this is how a failure is repeated.
//! - `STRIPEWISE_TEST_SECONDS=s` lets each sweep go on for s seconds (`make soak`).

use std::time::{Duration, Instant};

/// After this long a sweep is content with the fewest seeds.
const USUAL_LENGTH: Duration = Duration::from_secs(4);

/// The seeds of one test, as an iterator. It prints how many were run when it is dropped.
pub(crate) struct Sweep {
    next: u64,
    /// Run these even when time is short.
    fewest: u64,
    /// Past the last one.
    end: u64,
    begin: Instant,
    length: Duration,
    runs: u64,
}

/// What an environment variable says, as a number.
fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// How long a sweep is to go on, where the environment says so.
fn asked_length() -> Option<Duration> {
    variable("STRIPEWISE_TEST_SECONDS").map(Duration::from_secs)
}

/// Seeds 1 to `usual`, at least `fewest` of them, unless the environment asks for others.
pub(crate) fn sweep(fewest: u64, usual: u64) -> Sweep {
    let begin = Instant::now();
    if let Some(seed) = variable("STRIPEWISE_TEST_SEED") {
        return Sweep { next: seed, fewest: 1, end: seed + 1, begin, length: Duration::MAX, runs: 0 };
    }
    match asked_length() {
        Some(length) => Sweep { next: 1, fewest, end: u64::MAX, begin, length, runs: 0 },
        None => Sweep { next: 1, fewest, end: usual + 1, begin, length: USUAL_LENGTH, runs: 0 },
    }
}

impl Iterator for Sweep {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let time_is_over = self.runs >= self.fewest && self.begin.elapsed() >= self.length;
        if self.next >= self.end || time_is_over {
            return None;
        }
        println!("seed {}", self.next);
        (self.next, self.runs) = (self.next + 1, self.runs + 1);
        Some(self.next - 1)
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        println!("{} seeds, up to {}", self.runs, self.next.saturating_sub(1));
    }
}
