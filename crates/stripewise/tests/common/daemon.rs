//! A daemon for the time of a test.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::Sandbox;

/// No test waits longer for anything.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon of a sandbox; killed if the test ends before it.
pub struct Daemon {
    child: Child,
}

impl Daemon {
    /// Starts one and waits until it says that it is ready.
    pub fn start(sandbox: &Sandbox, words: &str) -> Self {
        Self::spawn(&mut sandbox.command(&format!("serve {words}")))
    }

    /// As [`Self::start`] with a command that was put together already.
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command.spawn().expect("started");
        let mut first = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut first).expect("text");
        let mut daemon = Self { child };
        assert_eq!(first, "ready\n", "{}", daemon.said());
        daemon
    }

    /// What it said on standard error, once it has ended.
    pub fn said(&mut self) -> String {
        let mut text = String::new();
        let _ = self.child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut text));
        text
    }

    /// Sends it a signal.
    pub fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(kill.expect("kill runs").success());
    }

    /// Ends it as the system does; what it said.
    pub fn end(mut self) -> String {
        self.signal("-TERM");
        let said = self.said();
        let status = self.child.wait().expect("ended");
        assert_eq!(status.code(), Some(0), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        said
    }

    /// Ends it without a warning.
    pub fn kill(mut self) {
        self.signal("-KILL");
        self.child.wait().expect("ended");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
