//! Processes that send alerts: each leads a group of its own, gets the alert on standard input, and
//! has a time limit.
//!
//! Expected faults: processes that fail, never end, do not read, write without end, or leave others
//! behind that hold their pipes: those are not waited for, and are ended at the same limit.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStderr, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use stripewise_runtime::{do_not_wait, end_process_group};

use super::Outcome;
use crate::failure::system_text;
use crate::notation::plain::one_line;

/// Interval of checks of a running process.
const LOOK: Duration = Duration::from_millis(20);
/// Maximum length of a process's error output that is shown, bytes.
const MOST_SAID_BYTES: usize = 500;
/// Maximum bytes read from a pipe at a time: endless output must not delay the time limit.
const MOST_READ_AT_ONCE: usize = 1 << 20;
/// Maximum groups left behind; beyond it the oldest is ended.
const MOST_LEFT_BEHIND: usize = 8;

/// Runs processes, one after the other.
pub(super) struct Processes {
    patience: Duration,
    left_behind: VecDeque<LeftBehind>,
}

/// A group that outlived its leader. The group's number is not reused while its pipe is open, which
/// shows that a member is alive.
struct LeftBehind {
    group: u32,
    stderr: ChildStderr,
    until: Instant,
}

impl Processes {
    /// A runner with this time limit for each process.
    pub(super) fn with_limit(patience: Duration) -> Self {
        Self { patience, left_behind: VecDeque::new() }
    }

    /// Runs a process with `input`, to its end or to its limit.
    pub(super) fn run(&mut self, command: &mut Command, input: &str) -> Outcome {
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| system_text(&error))?;
        let until = Instant::now() + self.patience;
        let (mut stdin, stderr) = (child.stdin.take(), child.stderr.take());
        let mut stderr = stderr.expect("it was asked for");
        let pipes = stdin.as_ref().map_or(Ok(()), do_not_wait).and_then(|()| do_not_wait(&stderr));
        let (mut unsent, mut said) = (input.as_bytes(), Vec::new());
        let status = loop {
            give(&mut stdin, &mut unsent);
            drain(&mut stderr, &mut said);
            match child.try_wait() {
                Ok(Some(status)) if pipes.is_ok() => break status,
                Ok(None) if pipes.is_ok() && Instant::now() < until => std::thread::sleep(LOOK),
                waited => {
                    end_process_group(child.id());
                    let _ = child.wait();
                    return Err(match pipes.and(waited) {
                        Ok(_) => format!("it did not end within {} s", self.patience.as_secs()),
                        Err(error) => system_text(&error),
                    });
                }
            }
        };
        if !drain(&mut stderr, &mut said) {
            self.left_behind.push_back(LeftBehind { group: child.id(), stderr, until });
        }
        self.sweep();
        if status.success() {
            return Ok(());
        }
        Err(format!("{status}: {}", one_line(String::from_utf8_lossy(&said).trim())))
    }

    /// Reads the output of groups left behind, and ends those past their limit.
    pub(super) fn sweep(&mut self) {
        let too_many = self.left_behind.len().saturating_sub(MOST_LEFT_BEHIND);
        for (index, left) in self.left_behind.iter_mut().enumerate() {
            if index < too_many {
                left.until = Instant::now();
            }
        }
        self.left_behind.retain_mut(|left| {
            let has_ended = drain(&mut left.stderr, &mut vec![0; MOST_SAID_BYTES]);
            let is_late = Instant::now() >= left.until;
            if is_late && !has_ended {
                end_process_group(left.group);
            }
            !has_ended && !is_late
        });
    }

    /// True if there are groups to [`sweep`](Self::sweep).
    pub(super) fn are_left_behind(&self) -> bool {
        !self.left_behind.is_empty()
    }
}

/// Writes as much as the pipe takes, and closes it after the last byte.
fn give(pipe: &mut Option<ChildStdin>, unsent: &mut &[u8]) {
    while let Some(to) = pipe {
        match to.write(unsent) {
            Ok(0) => *pipe = None,
            Ok(written) => {
                *unsent = &unsent[written..];
                if unsent.is_empty() {
                    *pipe = None;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            // A process need not read its input.
            Err(_) => *pipe = None,
        }
    }
}

/// Reads the pipe, keeping the beginning; true if no process can write to it any more.
fn drain(pipe: &mut ChildStderr, said: &mut Vec<u8>) -> bool {
    let (mut bytes, mut read_bytes) = ([0; 4096], 0);
    while read_bytes < MOST_READ_AT_ONCE {
        match pipe.read(&mut bytes) {
            Ok(0) => return true,
            Ok(length) => {
                let kept = length.min(MOST_SAID_BYTES.saturating_sub(said.len()));
                said.extend_from_slice(&bytes[..kept]);
                read_bytes += length;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn sh(processes: &mut Processes, script: &str, input: &str) -> Outcome {
        processes.run(Command::new("sh").args(["-c", script]), input)
    }

    /// Waits until the process has ended.
    fn until_gone(processes: &mut Processes, folder: &Path) {
        let number = std::fs::read_to_string(folder.join("number")).expect("written");
        let process = Path::new("/proc").join(number.trim());
        let is_running = || {
            let state = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
            !state.is_empty() && !state.contains(") Z ")
        };
        let begin = Instant::now();
        while is_running() {
            assert!(begin.elapsed() < Duration::from_secs(8), "the process is still running");
            processes.sweep();
            std::thread::sleep(LOOK);
        }
    }

    #[test]
    fn a_process_left_behind_delays_no_answer() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut processes = Processes::with_limit(Duration::from_secs(1));
        let script =
            format!("sleep 600 & echo $! > {}/number; echo why >&2; exit 3", folder.path().display());
        let begin = Instant::now();
        let failed = sh(&mut processes, &script, "").expect_err("it failed");
        assert!(failed.ends_with(": why") && failed.contains('3'), "{failed}");
        assert!(begin.elapsed() < Duration::from_secs(1), "it was not waited for");
        assert!(processes.are_left_behind());
        assert_eq!(sh(&mut processes, "exit 0", ""), Ok(()), "the next one runs");
        until_gone(&mut processes, folder.path());
        assert!(!processes.are_left_behind());
    }

    #[test]
    fn a_group_is_ended_at_its_limit() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut processes = Processes::with_limit(Duration::from_millis(300));
        let script = format!("sleep 600 & echo $! > {}/number; wait", folder.path().display());
        let failed = sh(&mut processes, &script, "").expect_err("it does not end");
        assert!(failed.contains("did not end within"), "{failed}");
        until_gone(&mut processes, folder.path());
    }

    #[test]
    fn full_pipes_hold_up_no_process() {
        let mut processes = Processes::with_limit(Duration::from_secs(8));
        let talks = sh(&mut processes, "head -c 300000 /dev/zero | tr '\\0' x >&2; exit 1", "");
        let said = talks.expect_err("it failed");
        assert!(said.ends_with(&"x".repeat(MOST_SAID_BYTES)), "{}", said.len());
        let input = "y".repeat(300_000);
        assert_eq!(sh(&mut processes, "exit 0", &input), Ok(()), "it need not read");
        assert_eq!(sh(&mut processes, "test $(wc -c) = 300000", &input), Ok(()), "it may read all");
    }

    #[test]
    fn few_groups_are_left_behind() {
        let mut processes = Processes::with_limit(Duration::from_secs(60));
        for _ in 0..MOST_LEFT_BEHIND + 3 {
            assert_eq!(sh(&mut processes, "sleep 600 & exit 0", ""), Ok(()));
        }
        assert_eq!(processes.left_behind.len(), MOST_LEFT_BEHIND);
        for left in &mut processes.left_behind {
            left.until = Instant::now();
        }
        processes.sweep();
        assert!(!processes.are_left_behind());
    }
}
