//! Runs third-party programs.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};

/// Search path for programs, including the administrator's.
pub fn search_path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

/// True if all programs are installed. Prints a message if not, since the test then covers less.
pub fn are_here(programs: &[&str]) -> bool {
    let missing: Vec<&str> = programs.iter().copied().filter(|program| !is_here(program)).collect();
    if !missing.is_empty() {
        eprintln!("passed over: this test needs {}", missing.join(", "));
    }
    missing.is_empty()
}

fn is_here(program: &str) -> bool {
    let look = format!("command -v {program}");
    let found = Command::new("sh").args(["-c", &look]).env("PATH", search_path()).output();
    found.is_ok_and(|output| output.status.success())
}

/// True if volumes can be mounted and the programs are installed. Prints a message if not.
pub fn is_possible(programs: &[&str]) -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let mut lacks = Vec::new();
    if !root {
        lacks.push("root");
    }
    lacks.extend(["/dev/fuse", "/dev/loop-control"].into_iter().filter(|path| !Path::new(path).exists()));
    lacks.extend(programs.iter().copied().filter(|program| !is_here(program)));
    if !lacks.is_empty() {
        eprintln!("passed over: this test needs {}", lacks.join(", "));
    }
    lacks.is_empty()
}

/// Runs a program to its end.
pub fn program(words: &[&str]) -> Output {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("PATH", search_path()).env("LC_ALL", "C");
    command.output().unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// Runs a program, which must succeed. Returns its output.
pub fn succeeds(words: &[&str]) -> String {
    let output = program(words);
    let says = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {says}{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
