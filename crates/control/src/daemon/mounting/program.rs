//! Running system programs such as `umount`. A thread waits for them while the executor continues,
//! since they read and write through this very process.
//!
//! Expected faults: a program that is not installed, one that fails (its messages are passed on),
//! and signals from the keyboard, which must not reach the programs.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use stripewise_export::bridge::off_thread;

use crate::failure::{Failure, Result};

/// Package of mount, umount and losetup.
pub(super) const UTIL_LINUX: &str = "util-linux";
/// Folders of administration programs, which the PATH of daemons and users may lack.
const MORE_FOLDERS: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// Runs a program of the Debian package `package` to its end. Returns its standard output.
pub(super) async fn run(program: &str, package: &str, words: &[&OsStr]) -> Result<String> {
    let shown: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let shown = format!("{program} {}", shown.join(" "));
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":");
    path.push(MORE_FOLDERS);
    let mut command = Command::new(program);
    command.args(words).env("PATH", path).env("LC_ALL", "C").stdin(Stdio::null()).process_group(0);
    let output = off_thread(move || command.output()).await.and_then(|output| output);
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failure::new(format!("`{program}` is required but not installed"))
            .hint(format!("on Debian and its derivatives: apt-get install {package}")),
        _ => Failure::because(format!("cannot run `{shown}`"), &error),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let says = String::from_utf8_lossy(&output.stderr);
    let says: Vec<&str> = says.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let why = match says.as_slice() {
        [] => output.status.to_string(),
        lines => lines.join("; "),
    };
    Err(Failure::new(format!("`{shown}` failed: {why}")))
}

#[cfg(test)]
mod tests {
    use stripewise_runtime::RealExecutor;

    use super::*;

    #[test]
    fn program_output_is_kept_and_missing_ones_named() {
        let executor = RealExecutor::new().expect("io_uring");
        let sh = |script: &str| executor.block_on(run("sh", "dash", &["-c".as_ref(), script.as_ref()]));
        assert_eq!(sh("echo yes").expect("it runs"), "yes\n");
        let failure = sh("echo no >&2; echo really >&2; exit 3").expect_err("it fails");
        assert!(failure.message.ends_with("failed: no; really"), "{}", failure.message);
        let missing = executor.block_on(run("mkfs.nothing", "nothing-progs", &[])).expect_err("not there");
        assert_eq!(missing.message, "`mkfs.nothing` is required but not installed");
        assert!(missing.hint.expect("a hint").contains("nothing-progs"));
    }
}
