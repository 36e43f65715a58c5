//! Runs a test in its own process, for tests that measure the process or send it signals.

use std::process::Command;

const ALONE: &str = "STRIPEWISE_TEST_ALONE";

/// True if this process runs only the test `name` (with its modules, as the test binary lists it).
/// Otherwise runs the test in such a process, where it must pass; the caller then returns.
pub fn is_own_process(name: &str) -> bool {
    if std::env::var(ALONE).is_ok_and(|alone| alone == name) {
        return true;
    }
    let output = Command::new(std::env::current_exe().expect("a test binary"))
        .args(["--exact", name, "--nocapture"])
        .env(ALONE, name)
        .output()
        .expect("the test binary can be run");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{errors}");
    print!("{said}");
    false
}
