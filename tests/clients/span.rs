//! Duration of the tests, and processes that run for that time.

use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::kit::daemon::wait;

/// Default duration, which suits `make test`.
const QUICK: Duration = Duration::from_secs(6);
/// Time that a program may exceed its requested duration.
const GRACE: Duration = Duration::from_secs(180);

/// Duration of a test.
#[derive(Clone, Copy)]
pub struct Span {
    begin: Instant,
    length: Duration,
}

impl Span {
    /// Begins now and lasts `SOAK_SECONDS`.
    pub fn begin() -> Self {
        let asked = std::env::var("SOAK_SECONDS").ok();
        let seconds = asked.map(|text| text.parse().expect("SOAK_SECONDS is a number of seconds"));
        Self { begin: Instant::now(), length: seconds.map_or(QUICK, Duration::from_secs) }
    }

    /// Total duration.
    pub fn length(self) -> Duration {
        self.length
    }

    /// True for a long test.
    pub fn is_long(self) -> bool {
        self.length > 5 * QUICK
    }

    /// True once the time is over.
    pub fn is_over(self) -> bool {
        self.left().is_zero()
    }

    /// Time left.
    pub fn left(self) -> Duration {
        self.length.saturating_sub(self.begin.elapsed())
    }

    /// Whole seconds left, at least one.
    pub fn seconds_left(self) -> u64 {
        self.left().as_secs().max(1)
    }

    /// Time since the start.
    pub fn elapsed(self) -> Duration {
        self.begin.elapsed()
    }
}

/// A background program; killed on drop.
pub struct Running {
    child: Child,
    shown: String,
    patience: Duration,
}

impl Running {
    /// Starts a program that ends on its own within `length`, or soon after.
    pub fn start(command: &mut Command, length: Duration) -> Self {
        let shown = format!("{command:?}");
        let child = command.spawn().unwrap_or_else(|error| panic!("{shown}: {error}"));
        Self { child, shown, patience: length + GRACE }
    }

    /// Standard input and output, which must be pipes.
    pub fn pipes(&mut self) -> (ChildStdin, ChildStdout) {
        (self.child.stdin.take().expect("a pipe"), self.child.stdout.take().expect("a pipe"))
    }

    /// Waits until the program exits.
    pub fn wait(&mut self) -> ExitStatus {
        let ended = wait(&mut self.child, self.patience);
        ended.unwrap_or_else(|| panic!("{} does not end", self.shown))
    }

    /// Waits until the program exits, which must be with success; `log` is its output.
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
