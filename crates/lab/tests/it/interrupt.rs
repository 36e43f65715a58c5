//! An interrupt in the middle of an evaluation: it ends, says so, and leaves nothing behind. In a
//! process of its own, since the signal goes to the whole of it.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::own_process::is_own_process;

use stripewise_lab::evaluate::{EvaluateError, EvaluateOptions, Progress, Status, evaluate};

/// Interrupts this process when the first array is being measured.
struct InterruptOnce(std::cell::Cell<bool>);

impl Progress for InterruptOnce {
    fn update(&self, status: &Status) {
        if status.what.contains("run 1 of") && !self.0.replace(true) {
            let process = std::process::id().to_string();
            assert!(Command::new("kill").args(["-INT", &process]).status().expect("kill runs").success());
        }
    }

    fn note(&self, _: &str) {}
}

#[test]
fn an_interrupted_evaluation_leaves_nothing_behind() {
    if !is_own_process("interrupt::an_interrupted_evaluation_leaves_nothing_behind") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let options = EvaluateOptions {
        quick: true,
        drive_bytes: Some(32 << 20),
        ..EvaluateOptions::new(folder.path().to_owned(), String::new())
    };
    let interrupt = InterruptOnce(std::cell::Cell::new(false));
    let begun = Instant::now();
    let error = evaluate(&options, &interrupt).expect_err("it was interrupted");
    assert!(matches!(error, EvaluateError::Interrupted), "{error}");
    assert!(interrupt.0.get() && begun.elapsed() < Duration::from_secs(40));
    assert!(std::fs::read_dir(folder.path()).expect("still there").next().is_none());
}
