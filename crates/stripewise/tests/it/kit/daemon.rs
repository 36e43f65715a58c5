//! Processes of the program that stay, for the time of a test.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use tempfile::NamedTempFile;

use super::Sandbox;

/// No test waits longer for anything.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Nor for the end of a process, which may have much to put in its place, on a machine with other
/// work to do.
const END_PATIENCE: Duration = Duration::from_secs(120);

/// A process that stays; killed if the test ends before it.
pub struct Process {
    child: Child,
    words: String,
    /// A file, which takes whatever it says: a pipe that nobody reads would stop it.
    stderr: NamedTempFile,
}

impl Process {
    /// Starts `stripewise WORDS`.
    pub fn start(sandbox: &Sandbox, words: &str) -> Self {
        Self::spawn(sandbox, &mut sandbox.command(words), words)
    }

    /// As [`Self::start`] with a command that was put together already.
    pub fn spawn(sandbox: &Sandbox, command: &mut Command, words: &str) -> Self {
        let stderr = tempfile::Builder::new().append(true).tempfile_in(sandbox.path("")).expect("a file");
        let child =
            command.stderr(stderr.as_file().try_clone().expect("another handle")).spawn().expect("started");
        Self { child, words: words.to_owned(), stderr }
    }

    /// Waits until it says that it is ready.
    pub fn expect_ready(&mut self) {
        let mut first = String::new();
        BufReader::new(self.child.stdout.take().expect("piped")).read_line(&mut first).expect("text");
        assert_eq!(first, "ready\n", "`{}`: {}", self.words, self.said());
    }

    /// What it said on standard error so far.
    pub fn said(&self) -> String {
        std::fs::read_to_string(self.stderr.path()).expect("text")
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, name: &str) {
        let kill = Command::new("kill").args([name, &self.id().to_string()]).status();
        assert!(kill.expect("kill runs").success());
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        wait(&mut self.child, END_PATIENCE)
            .unwrap_or_else(|| panic!("`{}` hangs: {}", self.words, self.said()))
    }

    /// Waits for its end, which must be one in order; what it said.
    pub fn expect_end(&mut self) -> String {
        let status = self.wait();
        let said = self.said();
        assert_eq!(status.code(), Some(0), "{said}");
        assert!(!said.contains("panicked"), "{said}");
        said
    }

    /// Ends it without a warning, if it has not ended yet.
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

/// How a process ended; `None`: it has not within that time.
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
    /// Starts one and waits until it says that it is ready.
    pub fn start(sandbox: &Sandbox, words: &str) -> Self {
        Self::start_with(sandbox, words, &[])
    }

    /// The same with these in its environment.
    pub fn start_with(sandbox: &Sandbox, words: &str, environment: &[(&str, &str)]) -> Self {
        let words = format!("serve {words}");
        let mut command = sandbox.command(&words);
        let mut process = Process::spawn(sandbox, command.envs(environment.iter().copied()), &words);
        process.expect_ready();
        Self { process }
    }

    /// What it said on standard error so far.
    pub fn said(&self) -> String {
        self.process.said()
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Ends it as the system does; what it said.
    pub fn end(mut self) -> String {
        self.process.signal("-TERM");
        self.process.expect_end()
    }

    /// Tells it to end; how it did, and what it said.
    pub fn end_anyhow(mut self) -> (ExitStatus, String) {
        self.process.signal("-TERM");
        (self.process.wait(), self.process.said())
    }

    /// Ends it without a warning.
    pub fn kill(mut self) {
        self.process.kill();
    }
}

/// Waits until something is so.
pub fn until(what: &str, is_so: impl FnMut() -> bool) {
    until_within(PATIENCE, what, is_so);
}

/// Waits so long until something is so.
pub fn until_within(patience: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < patience, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
