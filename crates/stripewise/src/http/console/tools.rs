//! Predictions, advice and results of the laboratory for the pages: commands that need no pool of
//! the daemon run in a process of their own, so the daemon serves its clients all the while. A tool
//! takes the options of its command that are listed here, and none that names a file to write.
//!
//! Expected faults: wrong options (the command's own words come back), a process that takes too
//! long or is waited for no more (it is killed), more callers than processes.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_channel::oneshot;
use ring::rand::{SecureRandom, SystemRandom};
use serde::Deserialize;
use stripewise_control::roles::Role;
use tokio::sync::Semaphore;

use crate::failure::system_text;
use crate::http::api::Api;
use crate::http::bodies::Document;
use crate::http::problem::{error, with_command_hint};

/// Processes at the same time.
static PLACES: Semaphore = Semaphore::const_new(2);
/// Time limit of a process.
const PATIENCE: Duration = Duration::from_secs(120);
/// Interval of looks at a process.
const LOOK: Duration = Duration::from_millis(10);
/// Maximum length of a document.
const MAX_BYTES: u64 = 16 << 20;
/// Maximum length of the messages of a process.
const MAX_MESSAGE_BYTES: u64 = 64 << 10;

/// A command for the pages.
struct Tool {
    name: &'static str,
    command: &'static [&'static str],
    /// Maximum number of arguments without a name.
    max_words: usize,
    options: &'static [&'static str],
}

const TOOLS: [Tool; 9] = [
    Tool {
        name: "advise",
        command: &["advise"],
        max_words: 0,
        options: &[
            "drives",
            "workload",
            "link",
            "capacity",
            "risk",
            "spares",
            "journal",
            "controller",
            "bays",
            "rebuild-noise",
            "ure",
        ],
    },
    Tool { name: "pool-advise", command: &["pool", "advise"], max_words: 1, options: &["drive", "workload"] },
    Tool { name: "model-catalogue", command: &["model", "catalogue"], max_words: 1, options: &[] },
    Tool {
        name: "model-predict",
        command: &["model", "predict"],
        max_words: 1,
        options: &[
            "drives",
            "layout",
            "columns",
            "groups",
            "interleave",
            "controller",
            "controllers",
            "over",
            "link",
            "state",
            "profile",
            "pattern",
            "block",
            "depth",
            "workers",
            "read-share",
            "span",
        ],
    },
    Tool {
        name: "model-sweep",
        command: &["model", "sweep"],
        max_words: 0,
        options: &[
            "drive",
            "drives",
            "layouts",
            "interleaves",
            "blocks",
            "depths",
            "read-shares",
            "random-shares",
            "workers",
            "controller",
            "link",
            "state",
        ],
    },
    Tool { name: "lab-profiles", command: &["lab", "profiles"], max_words: 0, options: &[] },
    Tool { name: "lab-list", command: &["lab", "list"], max_words: 0, options: &[] },
    Tool { name: "lab-show", command: &["lab", "show"], max_words: 1, options: &[] },
    Tool { name: "lab-compare", command: &["lab", "compare"], max_words: 2, options: &[] },
];

/// Arguments of a command.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    #[serde(default)]
    words: Vec<String>,
    #[serde(default)]
    options: BTreeMap<String, String>,
}

/// Runs a command, and answers with its document.
pub(super) async fn tool(
    api: Api,
    Path(name): Path<String>,
    Document(arguments): Document<Arguments>,
) -> Response {
    let refused = |status, why: &str| error(status, why, None).into_response();
    let Some(tool) = TOOLS.iter().find(|tool| tool.name == name) else {
        return refused(StatusCode::NOT_FOUND, "there is no such tool");
    };
    let words = match words(tool, &arguments) {
        Ok(words) => words,
        Err(why) => return refused(StatusCode::BAD_REQUEST, &why),
    };
    if api.visitor.role < Role::Admin && names_a_file(&arguments) {
        // The message about a wrong file may quote it.
        return refused(StatusCode::FORBIDDEN, "only the role admin may name files here");
    }
    match run(words).await {
        Ok(document) => ([(header::CONTENT_TYPE, "application/json")], document).into_response(),
        Err((detail, hint)) => with_command_hint(StatusCode::CONFLICT, &detail, hint.as_deref()),
    }
}

/// True if an argument may be the path of a file: a drive, or a method or drive in TOML.
fn names_a_file(arguments: &Arguments) -> bool {
    let mut values = arguments.options.values().chain(&arguments.words);
    values.any(|value| value.contains('/') || value.contains(".toml"))
}

/// The command line of a tool. Values stay with their option, so none of them becomes another one.
fn words(tool: &Tool, arguments: &Arguments) -> Result<Vec<String>, String> {
    let mut words: Vec<String> = vec!["--json".to_owned()];
    words.extend(tool.command.iter().map(|&word| word.to_owned()));
    for (name, value) in &arguments.options {
        if !tool.options.contains(&name.as_str()) {
            return Err(format!("`{}` takes no option `{name}` here", tool.command.join(" ")));
        }
        words.push(format!("--{name}={value}"));
    }
    if arguments.words.len() > tool.max_words {
        return Err(format!("`{}` takes fewer arguments", tool.command.join(" ")));
    }
    words.push("--".to_owned());
    words.extend(arguments.words.iter().cloned());
    Ok(words)
}

/// Sets a flag when it is dropped.
struct OnLeave(Arc<AtomicBool>);

impl Drop for OnLeave {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs this program. Returns its document, or its error and hint.
async fn run(words: Vec<String>) -> Result<String, (String, Option<String>)> {
    let Ok(_place) = PLACES.try_acquire() else {
        let hint = "try again when one of them is done";
        return Err(("other predictions are running".to_owned(), Some(hint.to_owned())));
    };
    let has_left = Arc::new(AtomicBool::new(false));
    let (answer, answered) = oneshot::channel();
    let watched = has_left.clone();
    let thread = std::thread::Builder::new().name("tool".to_owned()).spawn(move || {
        // The caller may have left.
        let _ = answer.send(run_to_end(&words, &watched));
    });
    let _on_leave = OnLeave(has_left);
    let failed = |why: String| (why, None);
    thread.map_err(|why| failed(format!("the command could not be started: {}", system_text(&why))))?;
    answered.await.unwrap_or_else(|_| Err(failed("the command was lost".to_owned())))
}

fn run_to_end(words: &[String], has_left: &AtomicBool) -> Result<String, (String, Option<String>)> {
    let failed = |why: &std::io::Error| (format!("the command could not be run: {}", system_text(why)), None);
    let program = std::env::current_exe().map_err(|why| failed(&why))?;
    let mut child = Command::new(program)
        .args(words)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|why| failed(&why))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let out = std::thread::spawn(move || text_of(stdout, MAX_BYTES));
    let messages = std::thread::spawn(move || text_of(stderr, MAX_MESSAGE_BYTES));
    let is_done = wait(&mut child, has_left);
    let (out, messages) = (out.join().unwrap_or_default(), messages.join().unwrap_or_default());
    match is_done {
        Some(true) => Ok(out),
        Some(false) => Err(said(&out, &messages)),
        None => Err((format!("the command took longer than {} s", PATIENCE.as_secs()), None)),
    }
}

/// Waits for a process. Returns its success, or `None` if it was killed.
fn wait(child: &mut Child, has_left: &AtomicBool) -> Option<bool> {
    let begin = Instant::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status.success());
        }
        if begin.elapsed() > PATIENCE || has_left.load(Ordering::Relaxed) {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(LOOK);
    }
}

fn text_of(from: Option<impl Read>, most: u64) -> String {
    let mut bytes = Vec::new();
    // The part before an error is shown.
    let _ = from.map(|from| from.take(most).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A path for a temporary file, which other users cannot guess.
pub(super) fn temporary_path(end: &str) -> Option<PathBuf> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).ok()?;
    let name: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(std::env::temp_dir().join(format!("stripewise-{name}-{end}")))
}

/// The report of a run, made in a temporary file.
pub(super) async fn temporary_report(run_name: String) -> Result<String, (String, Option<String>)> {
    let Some(path) = temporary_path("report.html") else {
        return Err(("there is no randomness for a file's name".to_owned(), None));
    };
    let out = format!("--out={}", path.display());
    let words = ["--json", "lab", "report", &out, "--", &run_name].map(str::to_owned).to_vec();
    let made = run(words).await;
    let page = std::fs::read_to_string(&path);
    // It may not have been made.
    let _ = std::fs::remove_file(&path);
    made?;
    page.map_err(|why| (format!("the report could not be read: {}", system_text(&why)), None))
}

/// A failure, as a command prints it with `--json`.
#[derive(Deserialize)]
struct Failed {
    error: String,
    hint: Option<String>,
}

/// The error and the hint of a command: of its document, or else its messages.
pub(super) fn said(out: &str, messages: &str) -> (String, Option<String>) {
    match serde_json::from_str(out) {
        Ok(Failed { error, hint }) => (error, hint),
        Err(_) => (messages.trim().to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(name: &str, words: &[&str], options: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let tool = TOOLS.iter().find(|tool| tool.name == name).expect("a tool");
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        super::words(tool, &Arguments { words, options: options.collect() })
    }

    #[test]
    fn tools_take_only_their_listed_options() {
        let line = words_of("advise", &[], &[("drives", "--report=/etc/x")]).expect("an option");
        assert_eq!(line, ["--json", "advise", "--drives=--report=/etc/x", "--"]);
        assert!(words_of("advise", &[], &[("report", "/etc/x")]).is_err());
        assert!(words_of("advise", &["more"], &[]).is_err());
        let named =
            |value: &str| names_a_file(&Arguments { words: vec![value.into()], ..Default::default() });
        assert!(named("4x/dev/sda") && named("own.toml") && !named("4x8tb-hdd,2xnvme"));
        let line = words_of("lab-show", &["--help"], &[]).expect("a word");
        assert_eq!(line, ["--json", "lab", "show", "--", "--help"]);
    }

    #[test]
    fn failures_come_in_the_words_of_the_command() {
        let out = r#"{"output_version": 1, "error": "no drive `a`", "hint": "model catalogue"}"#;
        let expected = ("no drive `a`".to_owned(), Some("model catalogue".to_owned()));
        assert_eq!(said(out, "error: no drive `a`"), expected);
        assert_eq!(said("", "killed"), ("killed".to_owned(), None));
    }
}
