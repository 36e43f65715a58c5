//! Hooks that run the user's commands, from a TOML file: any system's own tools.
//!
//! A command runs in `sh`, with the target's path in `STRIPEWISE_TARGET`. It has a time limit,
//! after which it is killed with all its child processes. Its standard error is passed on. Expects
//! files with unknown keys, and commands that fail, hang, or leave processes behind.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use serde::Deserialize;
use stripewise_drive::Context;

use super::Hooks;
use crate::method::explain;

/// Poll interval for a running command.
const POLL: Duration = Duration::from_millis(10);
/// Maximum wait for the rest of its output.
const OUTPUT_WAIT: Duration = Duration::from_millis(200);
/// Maximum length of the output that is passed on.
const OUTPUT_BYTES: usize = 2000;

/// The hooks of a file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HookFile {
    fail: HookCommand,
    replace: HookCommand,
    #[serde(rename = "rebuild-done")]
    rebuild_done: Question,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct HookCommand {
    command: String,
    #[serde(default = "a_minute")]
    limit_seconds: f64,
}

/// A command that exits with 0 for yes, with 1 for not yet.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    command: String,
    #[serde(default = "a_minute")]
    limit_seconds: f64,
    #[serde(default = "a_second")]
    every_seconds: f64,
    #[serde(default = "two_days")]
    rebuild_limit_seconds: f64,
}

fn a_second() -> f64 {
    1.0
}
fn a_minute() -> f64 {
    60.0
}
fn two_days() -> f64 {
    172_800.0
}

impl HookFile {
    /// Parses a hook file.
    ///
    /// # Errors
    /// The mistake in the file, as a message.
    pub fn parse(text: &str) -> Result<Self, String> {
        let hooks: Self = toml::from_str(text).map_err(|error| explain(&error))?;
        let question = &hooks.rebuild_done;
        for (what, seconds) in [
            ("limit_seconds of fail", hooks.fail.limit_seconds),
            ("limit_seconds of replace", hooks.replace.limit_seconds),
            ("limit_seconds of rebuild-done", question.limit_seconds),
            ("every_seconds of rebuild-done", question.every_seconds),
            ("rebuild_limit_seconds of rebuild-done", question.rebuild_limit_seconds),
        ] {
            if !(0.001..=1e9).contains(&seconds) {
                return Err(format!("{what} is {seconds}; write seconds, more than 0"));
            }
        }
        Ok(hooks)
    }
}

/// The hooks of a file, applied to a target.
pub struct CommandHooks {
    /// Clock and tasks.
    pub context: Context,
    /// The commands.
    pub file: HookFile,
    /// Path of the target, passed to the commands.
    pub target: String,
}

impl CommandHooks {
    /// Returns the exit code and the output.
    async fn run(&self, command: &str, limit_seconds: f64) -> Result<(i32, String), String> {
        let (sender, answer) = channel();
        let (command, target) = (command.to_owned(), self.target.clone());
        let limit = Duration::from_secs_f64(limit_seconds);
        // The receiver is gone if the run has ended in between.
        std::thread::spawn(move || drop(sender.send(run_within(&command, &target, limit))));
        self.answer(&answer).await
    }

    async fn answer<T>(&self, answer: &Receiver<Result<T, String>>) -> Result<T, String> {
        loop {
            match answer.try_recv() {
                Ok(answer) => return answer,
                Err(TryRecvError::Disconnected) => return Err("ended unexpectedly".into()),
                Err(TryRecvError::Empty) => self.context.sleep_ns(POLL.as_nanos() as u64).await,
            }
        }
    }

    async fn run_well(&self, hook: &HookCommand) -> Result<(), String> {
        match self.run(&hook.command, hook.limit_seconds).await? {
            (0, _) => Ok(()),
            (code, output) => Err(ended(code, &output)),
        }
    }
}

fn ended(code: i32, output: &str) -> String {
    if output.is_empty() { format!("ended with {code}") } else { format!("ended with {code}: {output}") }
}

impl Hooks for CommandHooks {
    async fn fail(&self) -> Result<(), String> {
        self.run_well(&self.file.fail).await
    }

    async fn replace(&self) -> Result<(), String> {
        self.run_well(&self.file.replace).await
    }

    async fn is_rebuilt(&self) -> Result<bool, String> {
        let question = &self.file.rebuild_done;
        match self.run(&question.command, question.limit_seconds).await? {
            (0, _) => Ok(true),
            (1, _) => Ok(false),
            (code, output) => Err(ended(code, &output)),
        }
    }

    fn every_ns(&self) -> u64 {
        (self.file.rebuild_done.every_seconds * 1e9) as u64
    }

    fn rebuild_limit_ns(&self) -> u64 {
        (self.file.rebuild_done.rebuild_limit_seconds * 1e9) as u64
    }
}

fn run_within(command: &str, target: &str, limit: Duration) -> Result<(i32, String), String> {
    let deadline = Instant::now() + limit;
    let mut child = Command::new("sh")
        .args(["-c", command])
        .env("STRIPEWISE_TARGET", target)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| format!("cannot be started: {error}"))?;
    let output = listen(child.stderr.take());
    loop {
        match child.try_wait() {
            Err(error) => return Err(format!("cannot be waited for: {error}")),
            Ok(Some(status)) => {
                let text = remaining_output(&output);
                let code = status.code().ok_or_else(|| format!("ended by a signal ({status})"))?;
                return Ok((code, text));
            }
            Ok(None) if Instant::now() >= deadline => break,
            Ok(None) => std::thread::sleep(POLL),
        }
    }
    // Including all child processes: they are one process group.
    let group = format!("-{}", child.id());
    let killed = Command::new("sh").args(["-c", "kill -s KILL -- \"$0\"", &group]).status();
    if !killed.is_ok_and(|status| status.success()) {
        // At least the shell itself.
        let _ = child.kill();
    }
    let _ = child.wait();
    let text = remaining_output(&output);
    let why = format!("did not end within {} s and was killed", limit.as_secs_f64());
    Err(if text.is_empty() { why } else { format!("{why}; it said: {text}") })
}

/// Reads the output; does not wait for its end, as a process left running keeps the pipe open.
fn listen(pipe: Option<std::process::ChildStderr>) -> Receiver<Vec<u8>> {
    let (sender, output) = channel();
    std::thread::spawn(move || {
        let Some(mut pipe) = pipe else { return };
        let mut bytes = [0; 1024];
        while let Ok(count) = pipe.read(&mut bytes) {
            if count == 0 || sender.send(bytes[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    output
}

fn remaining_output(output: &Receiver<Vec<u8>>) -> String {
    let (deadline, mut all) = (Instant::now() + OUTPUT_WAIT, Vec::new());
    while let Ok(bytes) = output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        all.extend(bytes);
    }
    let text = String::from_utf8_lossy(&all[..all.len().min(OUTPUT_BYTES)]).into_owned();
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_runtime::RealExecutor;

    const DONE: &str =
        "[fail]\ncommand = \"true\"\n[replace]\ncommand = \"true\"\n[rebuild-done]\ncommand = \"true\"\n";

    #[test]
    fn mistakes_in_a_file_are_named() {
        assert!(HookFile::parse(DONE).is_ok());
        for (from, to, part) in [
            ("[fail]\ncommand", "[fail]\ncomand", "did you mean `command`"),
            ("[rebuild-done]", "[rebuild_done]", "did you mean `rebuild-done`"),
            ("[fail]", "[fail]\nlimit_seconds = 0", "more than 0"),
            ("[replace]\ncommand = \"true\"\n", "", "missing field `replace`"),
        ] {
            let error = HookFile::parse(&DONE.replace(from, to)).expect_err(part);
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn example_hook_files_are_valid() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/hooks");
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).expect("the folder") {
            let path = entry.expect("an entry").path();
            let text = std::fs::read_to_string(&path).expect("text");
            HookFile::parse(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
            names.push(path.file_stem().expect("a name").to_string_lossy().into_owned());
        }
        names.sort();
        assert_eq!(names, ["btrfs", "mdadm", "storage-spaces", "storcli", "zpool"]);
    }

    #[test]
    fn hooks_get_the_target_and_are_killed_at_the_limit() {
        let executor = RealExecutor::new().expect("io_uring");
        let folder = tempfile::tempdir().expect("a folder");
        let mark = folder.path().join("left");
        let hooks = |fail: &str| CommandHooks {
            context: executor.context(),
            file: HookFile {
                fail: HookCommand { command: fail.into(), limit_seconds: 0.3 },
                ..HookFile::parse(DONE).expect("hooks")
            },
            target: "/srv/a b".into(),
        };
        let fail = |command: &str| executor.block_on(hooks(command).fail());
        assert_eq!(fail("test \"$STRIPEWISE_TARGET\" = \"/srv/a b\""), Ok(()));
        assert_eq!(fail("echo no such drive >&2; exit 3"), Err("ended with 3: no such drive".into()));
        let left = format!("echo waiting >&2; sleep 60 & echo $! > {}; sleep 60", mark.display());
        let why = fail(&left).expect_err("it hangs");
        assert_eq!(why, "did not end within 0.3 s and was killed; it said: waiting");
        let started: u32 =
            std::fs::read_to_string(&mark).expect("written").trim().parse().expect("a process");
        let deadline = Instant::now() + Duration::from_secs(20);
        let is_there = || {
            let status = std::fs::read_to_string(format!("/proc/{started}/status"));
            status.is_ok_and(|status| !status.contains("State:\tZ"))
        };
        while is_there() {
            assert!(Instant::now() < deadline, "child processes are killed too");
            std::thread::yield_now();
        }
        // Processes left behind on purpose are not waited for.
        assert_eq!(fail("sleep 2 & true"), Ok(()));
    }
}
