//! How long the tests go on.

use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::kit::daemon::wait;

/// Where nothing else is asked for: as long as `make test` can spare.
const QUICK: Duration = Duration::from_secs(6);
/// So much longer than asked for may a program take that ends by itself.
const GRACE: Duration = Duration::from_secs(180);

/// How long a test goes on.
#[derive(Clone, Copy)]
pub struct Span {
    begin: Instant,
    length: Duration,
}

impl Span {
    /// From now on, as long as `SOAK_SECONDS` says.
    pub fn begin() -> Self {
        let asked = std::env::var("SOAK_SECONDS").ok();
        let seconds = asked.map(|text| text.parse().expect("SOAK_SECONDS is a number of seconds"));
        Self { begin: Instant::now(), length: seconds.map_or(QUICK, Duration::from_secs) }
    }

    /// How long it goes on in all.
    pub fn length(self) -> Duration {
        self.length
    }

    /// Whether the test is a long one.
    pub fn is_long(self) -> bool {
        self.length > 5 * QUICK
    }

    /// Whether it is time to come to an end.
    pub fn is_over(self) -> bool {
        self.left().is_zero()
    }

    /// How long it still goes on.
    pub fn left(self) -> Duration {
        self.length.saturating_sub(self.begin.elapsed())
    }

    /// Whole seconds still to go, at least one.
    pub fn seconds_left(self) -> u64 {
        self.left().as_secs().max(1)
    }

    /// Since it began.
    pub fn elapsed(self) -> Duration {
        self.begin.elapsed()
    }
}

/// A program that runs beside others; killed if the test ends before it.
pub struct Running {
    child: Child,
    shown: String,
    patience: Duration,
}

impl Running {
    /// Starts one that ends by itself within `length`, or soon after.
    pub fn start(command: &mut Command, length: Duration) -> Self {
        let shown = format!("{command:?}");
        let child = command.spawn().unwrap_or_else(|error| panic!("{shown}: {error}"));
        Self { child, shown, patience: length + GRACE }
    }

    /// Its input and output, where these are pipes.
    pub fn pipes(&mut self) -> (ChildStdin, ChildStdout) {
        (self.child.stdin.take().expect("a pipe"), self.child.stdout.take().expect("a pipe"))
    }

    /// How it ended.
    pub fn wait(&mut self) -> ExitStatus {
        let ended = wait(&mut self.child, self.patience);
        ended.unwrap_or_else(|| panic!("{} does not end", self.shown))
    }

    /// Waits for its end, which must be a good one; `log` is what it said.
    pub fn expect_success(&mut self, log: &std::path::Path) {
        let status = self.wait();
        let said = std::fs::read(log).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        assert!(status.success(), "{}: {status}: {said}", self.shown);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
