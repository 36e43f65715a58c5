//! fio as a process: started with a job, here or on all hosts at once, and its answer checked.
//!
//! Output is read while it runs, so that it never blocks on a full pipe. Expects fio to be missing,
//! to be ended by a signal, and to return invalid answers.

use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use super::{Asked, FioError, Host, JobFile, jobs_of};
use crate::method::Step;
use crate::records::import::import;

/// Interval of looks at a running process.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// A fio process, running or ended.
pub(super) struct Fio {
    child: Child,
    output: JoinHandle<Vec<u8>>,
    errors: JoinHandle<Vec<u8>>,
    ended: Option<ExitStatus>,
    /// Kept until the end, as servers receive it by its path.
    _job: Option<JobFile>,
}

impl Fio {
    pub(super) fn start(job: &str, asked: &Asked<'_>) -> Result<Self, FioError> {
        let hosts = asked.hosts;
        let mut command = Command::new("fio");
        command.arg("--output-format=json+");
        // A second safeguard: jobs that write are not even created. The command-line option does
        // not apply to servers.
        if !asked.may_write && hosts.is_empty() {
            command.arg("--readonly");
        }
        // A client sends its servers a file; without hosts fio reads its standard input.
        let file = (!hosts.is_empty()).then(|| JobFile::write(job)).transpose();
        let file = file.map_err(FioError::Missing)?;
        match &file {
            None => {
                command.arg("-");
            }
            Some(file) => hosts.iter().for_each(|host| {
                command.arg(format!("--client=ip:{},{}", host.name, host.port)).arg(&file.path);
            }),
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(FioError::Missing)?;
        let mut input = child.stdin.take().expect("stdin is piped");
        if file.is_none() {
            // If it ended early the pipe is broken, and its own message gives the reason.
            let _ = input.write_all(job.as_bytes());
        }
        drop(input);
        let output = collect_output(child.stdout.take().expect("stdout is piped"));
        let errors = collect_output(child.stderr.take().expect("stderr is piped"));
        Ok(Self { child, output, errors, ended: None, _job: file })
    }

    /// Process id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end, and looks at `goes_on` at short intervals; where that is false, kills it.
    pub(super) fn wait(&mut self, goes_on: &dyn Fn() -> bool) -> Result<(), FioError> {
        while !self.has_ended()? {
            if !goes_on() {
                self.kill();
                return Err(FioError::Interrupted);
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
        Ok(())
    }

    pub(super) fn has_ended(&mut self) -> Result<bool, FioError> {
        self.ended = self.child.try_wait().map_err(FioError::Missing)?;
        Ok(self.ended.is_some())
    }

    /// Kills it with all its threads.
    pub(super) fn kill(&mut self) {
        // Both fail only if it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Result of the ended process.
    pub(super) fn answer(self, step: &Step, hosts: &[Host]) -> Result<Value, FioError> {
        let output = self.output.join().unwrap_or_default();
        let errors = self.errors.join().unwrap_or_default();
        let text = String::from_utf8_lossy(&output);
        let errors = String::from_utf8_lossy(&errors).into_owned() + &text;
        let last_message =
            || errors.lines().rfind(|line| line.contains("fio:")).unwrap_or("no message").trim().to_owned();
        let failed = |why: String| FioError::Failed { step: step.name.clone(), why };
        if !self.ended.is_some_and(|status| status.success()) {
            return Err(failed(last_message()));
        }
        let start = text.find('{').unwrap_or(0);
        let mut documents = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
        let document = documents.next().and_then(Result::ok).unwrap_or(Value::Null);
        if hosts.is_empty() {
            import(&output).map_err(|source| FioError::Output { step: step.name.clone(), source })?;
            return Ok(document);
        }
        for host in hosts {
            let is_of = |one: &&Value| {
                one["hostname"] == host.name.as_str() && one["port"].as_u64() == Some(u64::from(host.port))
            };
            if !jobs_of(&document).iter().any(is_of) {
                return Err(failed(format!("{host} gave no result: {}", last_message())));
            }
        }
        Ok(document)
    }
}

fn collect_output(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        // After a failure, the output read so far is used.
        let _ = pipe.read_to_end(&mut all);
        all
    })
}
