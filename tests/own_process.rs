//! A test that needs a process of its own, as it measures it or sends it signals.

use std::process::Command;

const ALONE: &str = "STRIPEWISE_TEST_ALONE";

/// Whether this process runs only the test `name` (with its modules, as the test binary lists it).
/// If not, the test is run in such a process; it must pass there, and the caller returns.
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
