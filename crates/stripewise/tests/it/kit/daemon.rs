//! Long-running processes of the program, for the time of a test.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;

use super::Sandbox;

/// Time limit for any event, for hosts that do much else.
pub const PATIENCE: Duration = Duration::from_secs(90);
/// Time limit for the end of a process, which may have much to write back on a busy host.
const END_PATIENCE: Duration = Duration::from_secs(120);

/// A long-running process; killed on drop.
pub struct Process {
    child: Child,
    words: String,
    /// File for standard error: an unread pipe would block the process.
    stderr: NamedTempFile,
}

impl Process {
    /// Starts `stripewise WORDS`.
    pub fn start(sandbox: &Sandbox, words: &str) -> Self {
        Self::spawn(sandbox, &mut sandbox.command(words), words)
    }

    /// As [`Self::start`], with a given command.
    pub fn spawn(sandbox: &Sandbox, command: &mut Command, words: &str) -> Self {
        let stderr = tempfile::Builder::new().append(true).tempfile_in(sandbox.path("")).expect("a file");
        let child =
            command.stderr(stderr.as_file().try_clone().expect("another handle")).spawn().expect("started");
        Self { child, words: words.to_owned(), stderr }
    }

    /// Waits until the process prints that it is ready.
    pub fn expect_ready(&mut self) {
        let mut first = String::new();
        BufReader::new(self.child.stdout.take().expect("piped")).read_line(&mut first).expect("text");
        assert_eq!(first, "ready\n", "`{}`: {}", self.words, self.said());
    }

    /// Standard error so far.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.stderr.path()).expect("text")
    }

    /// Process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([name, &self.id().to_string()]).status();
        assert!(kill.expect("kill runs").success());
    }

    /// Waits until the process exits.
    pub fn wait(&mut self) -> ExitStatus {
        wait(&mut self.child, END_PATIENCE)
            .unwrap_or_else(|| panic!("`{}` hangs: {}", self.words, self.said()))
    }

    /// Waits until the process exits, which must be with success. Returns its standard error.
    pub fn expect_end(&mut self) -> String {
        let status = self.wait();
        let said = self.said();
        assert_eq!(status.code(), Some(0), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        said
    }

    /// Kills the process, if it is still running.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits for a process to exit. Returns `None` if it still runs after `patience`.
pub fn wait(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < patience {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

/// A daemon of a sandbox.
pub struct Daemon {
    process: Process,
}

impl Daemon {
    /// Starts a daemon and waits until it is ready.
    pub fn start(sandbox: &Sandbox, words: &str) -> Self {
        Self::start_with(sandbox, words, &[])
    }

    /// As [`Self::start`], with these environment variables. With one core, or
    /// `STRIPEWISE_TEST_CORES`: every test holds for any number.
    pub fn start_with(sandbox: &Sandbox, words: &str, environment: &[(&str, &str)]) -> Self {
        let cores = std::env::var("STRIPEWISE_TEST_CORES").unwrap_or_else(|_| "1".into());
        let words = match words.contains("--cores") {
            true => format!("serve {words}"),
            false => format!("serve {words} --cores {cores}"),
        };
        let mut command = sandbox.command(&words);
        let mut process = Process::spawn(sandbox, command.envs(environment.iter().copied()), &words);
        process.expect_ready();
        Self { process }
    }

    /// Standard error so far.
    pub fn said(&self) -> String {
        self.process.said()
    }

    /// Process ID.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Stops the daemon with SIGTERM, as the system does. Returns its standard error.
    pub fn end(mut self) -> String {
        self.process.signal("-TERM");
        self.process.expect_end()
    }

    /// Stops the daemon with SIGTERM. Returns its exit status and its standard error.
    pub fn end_anyhow(mut self) -> (ExitStatus, String) {
        self.process.signal("-TERM");
        (self.process.wait(), self.process.said())
    }

    /// Kills the daemon.
    pub fn kill(mut self) {
        self.process.kill();
    }
}

/// Waits until a condition holds.
pub fn until(what: &str, is_so: impl FnMut() -> bool) {
    until_within(PATIENCE, what, is_so);
}

/// Waits at most `patience` until a condition holds.
pub fn until_within(patience: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < patience, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
