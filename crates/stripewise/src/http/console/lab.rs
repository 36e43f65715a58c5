//! Runs of the laboratory that were begun on a page: one at a time, since two would disturb each
//! other, each a process of its own. Figures are in the result store as soon as they are measured,
//! where the pages read them; messages of the process are kept here.
//!
//! Expected faults: targets that cannot be used (the command's own words come back), a page that is
//! closed (the run goes on), a daemon that ends (the run is interrupted, and removes what it made).

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use stripewise_control::plain::cut;
use stripewise_control::roles::Role;
use stripewise_control::times::unix_ms;

use super::tools::{said, temporary_path, temporary_report};
use crate::failure::system_text;
use crate::http::api::Api;
use crate::http::bodies::Document;
use crate::http::problem::error;

/// Maximum number of runs that are remembered.
const MAX_RUNS: usize = 16;
/// Maximum number of messages that are kept of a run.
const MAX_LINES: usize = 200;
/// Maximum length of a message.
const MAX_LINE_BYTES: usize = 500;
/// Maximum length of a run's document.
const MAX_BYTES: u64 = 16 << 20;

/// A run, for the pages.
#[derive(Clone, Serialize)]
struct Run {
    number: u64,
    /// The command line, without the program.
    words: Vec<String>,
    began_unix_ms: u64,
    /// `running`, `done` or `failed`.
    state: &'static str,
    /// Newest last.
    messages: Vec<String>,
    /// Why it failed, and the next step.
    error: Option<String>,
    hint: Option<String>,
    /// The command's output.
    document: Option<serde_json::Value>,
    #[serde(skip)]
    process: u32,
}

/// The runs, oldest first, shared with the threads that wait for them.
#[derive(Clone, Default)]
struct Runs(Arc<Mutex<Vec<Run>>>);

/// The runs of a daemon. Dropping it interrupts the run that is in progress.
#[derive(Default)]
pub(super) struct LabRuns(Runs);

/// The runs, as handlers take them.
type Lab = Extension<Arc<LabRuns>>;

impl Drop for LabRuns {
    fn drop(&mut self) {
        if let Some(process) = self.0.change(|runs| runs.iter().find_map(Run::running)) {
            interrupt(process);
        }
    }
}

impl Run {
    /// Its process, while it is in progress.
    fn running(&self) -> Option<u32> {
        (self.state == "running").then_some(self.process)
    }
}

impl Runs {
    fn change<T>(&self, change: impl FnOnce(&mut Vec<Run>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn of<T>(&self, number: u64, change: impl FnOnce(&mut Run) -> T) -> Option<T> {
        self.change(|runs| runs.iter_mut().find(|run| run.number == number).map(change))
    }

    /// Starts a run; the reason if it cannot be started.
    fn start(&self, asked: &Asked) -> Result<u64, String> {
        self.change(|runs| {
            if runs.iter().any(|run| run.running().is_some()) {
                return Err("another run is in progress; two would disturb each other".to_owned());
            }
            // A study writes its report too, which nothing here reads.
            let folder = temporary_path("study").ok_or("there is no randomness for a folder's name")?;
            let words = asked.words(&folder);
            let failed = |why: std::io::Error| format!("the run could not be started: {}", system_text(&why));
            let mut child = Command::new(std::env::current_exe().map_err(failed)?)
                .args(&words)
                .env("NO_COLOR", "1")
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .map_err(failed)?;
            let number = runs.last().map_or(1, |run| run.number + 1);
            let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
            let began_unix_ms = unix_ms();
            let process = child.id();
            let empty = (Vec::new(), None, None, None);
            let (messages, error, hint, document) = empty;
            let state = "running";
            runs.push(Run { number, words, began_unix_ms, state, messages, error, hint, document, process });
            if runs.len() > MAX_RUNS {
                runs.remove(0);
            }
            let (listening, watching) = (self.clone(), self.clone());
            std::thread::spawn(move || {
                let lines = stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).split(b'\n'));
                lines.map_while(Result::ok).for_each(|line| listening.note(number, &line));
            });
            std::thread::spawn(move || {
                let mut out = Vec::new();
                // The part before an error is kept.
                let _ = stdout.map(|stdout| stdout.take(MAX_BYTES).read_to_end(&mut out));
                let is_done = child.wait().is_ok_and(|status| status.success());
                // A run of a target has made no folder.
                let _ = std::fs::remove_dir_all(&folder);
                watching.close(number, is_done, &String::from_utf8_lossy(&out));
            });
            Ok(number)
        })
    }

    fn note(&self, number: u64, line: &[u8]) {
        let line = cut(&String::from_utf8_lossy(line), MAX_LINE_BYTES);
        self.of(number, |run| {
            if run.messages.len() == MAX_LINES {
                run.messages.remove(0);
            }
            run.messages.push(line);
        });
    }

    fn close(&self, number: u64, is_done: bool, out: &str) {
        self.of(number, |run| {
            run.state = if is_done { "done" } else { "failed" };
            match is_done {
                true => run.document = serde_json::from_str(out).ok(),
                false => {
                    let (error, hint) = said(out, &run.messages.join("\n"));
                    (run.error, run.hint) = (Some(error), hint);
                }
            }
        });
    }
}

fn interrupt(process: u32) {
    // A run that has just ended needs no signal.
    let _ = Command::new("kill").args(["-INT", &process.to_string()]).stdin(Stdio::null()).status();
}

/// A run to begin.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "snake_case")]
pub(super) enum Asked {
    /// Measures a target with a method.
    Run {
        target: String,
        profile: String,
        seconds: Option<f64>,
        runs: Option<u32>,
        size: Option<String>,
        #[serde(default)]
        read_only: bool,
        #[serde(default)]
        force: bool,
    },
    /// Repeats a published study on modelled drives.
    Study { study: String, drive: Option<String> },
}

impl Asked {
    /// The command line; a study writes into `folder`.
    fn words(&self, folder: &std::path::Path) -> Vec<String> {
        let mut words = vec!["--json".to_owned(), "lab".to_owned()];
        match self {
            Self::Run { target, profile, seconds, runs, size, read_only, force } => {
                words.extend(["run".to_owned(), format!("--profile={profile}")]);
                words.extend(seconds.map(|seconds| format!("--seconds={seconds}")));
                words.extend(runs.map(|runs| format!("--runs={runs}")));
                words.extend(size.as_ref().map(|size| format!("--size={size}")));
                words.extend(read_only.then(|| "--read-only".to_owned()));
                words.extend(force.then(|| "--force".to_owned()));
                words.extend(["--".to_owned(), target.clone()]);
            }
            Self::Study { study, drive } => {
                words.extend(["study".to_owned(), "--quick".to_owned()]);
                words.push(drive.as_ref().map_or("--model".to_owned(), |drive| format!("--model={drive}")));
                words.push(format!("--out={}", folder.display()));
                words.extend(["--".to_owned(), study.clone()]);
            }
        }
        words
    }
}

/// The answer to a caller with a lower role than `needed`.
fn refusal(api: &Api, needed: Role) -> Option<Response> {
    let role = api.visitor.role;
    (role < needed).then(|| {
        let why = format!("it needs the role {needed}, and this caller has the role {role}");
        error(StatusCode::FORBIDDEN, &why, None).into_response()
    })
}

/// Begins a run.
pub(super) async fn begin(api: Api, lab: Lab, Document(asked): Document<Asked>) -> Response {
    // A run overwrites its target.
    if let Some(refusal) = refusal(&api, Role::Admin) {
        return refusal;
    }
    match lab.0.0.start(&asked) {
        Ok(number) => Json(serde_json::json!({ "number": number })).into_response(),
        Err(why) => error(StatusCode::CONFLICT, &why, Some("wait for its end, or stop it")).into_response(),
    }
}

/// The runs that were begun here, oldest first.
pub(super) async fn list(_: Api, lab: Lab) -> Response {
    let runs = lab.0.0.change(|runs| runs.clone());
    Json(serde_json::json!({ "runs": runs })).into_response()
}

/// Interrupts a run: what it measured stays in the store.
pub(super) async fn stop(api: Api, lab: Lab, Path(number): Path<u64>) -> Response {
    if let Some(refusal) = refusal(&api, Role::Admin) {
        return refusal;
    }
    let running = lab.0.0.of(number, |run| run.running()).flatten();
    match running {
        Some(process) => {
            interrupt(process);
            Json(serde_json::json!({})).into_response()
        }
        None => error(StatusCode::NOT_FOUND, "this run is not in progress", None).into_response(),
    }
}

/// The report of a run, as a file to keep: it is one page, whose styles the console does not allow.
pub(super) async fn report(api: Api, Path(run): Path<String>) -> Response {
    if let Some(refusal) = refusal(&api, Role::Operate) {
        return refusal;
    }
    match temporary_report(run).await {
        Ok(page) => {
            let headers = [
                (header::CONTENT_TYPE, "text/html; charset=utf-8"),
                (header::CONTENT_DISPOSITION, "attachment; filename=\"lab-report.html\""),
                (header::CONTENT_SECURITY_POLICY, "sandbox"),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            ];
            (headers, page).into_response()
        }
        Err((detail, _)) => error(StatusCode::CONFLICT, &detail, None).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_takes_no_option_from_its_target() {
        let asked: Asked = serde_json::from_value(serde_json::json!({
            "kind": "run", "target": "--force", "profile": "toshiba", "seconds": 1.5, "read_only": true,
        }))
        .expect("a run");
        let words = asked.words("/x".as_ref());
        let expected =
            ["--json", "lab", "run", "--profile=toshiba", "--seconds=1.5", "--read-only", "--", "--force"];
        assert_eq!(words, expected);
    }
}
