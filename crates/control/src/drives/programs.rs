//! Programs that look at or act on a device, such as `blkid`: within limits of time and output, in
//! a group of their own, without this process's environment.
//!
//! Expected faults: programs that hang (ended), devices that hold even a killed program (no further
//! one is started for such a device), endless output (cut), pipes that children keep open.

use std::collections::BTreeSet;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use stripewise_runtime::end_process_group;

const LOOK: Duration = Duration::from_millis(2);
/// A killed program is gone within this, except if its device holds it. Also for what a program
/// wrote before its end.
const GRACE: Duration = Duration::from_secs(1);

/// Devices whose programs do not end.
static STUCK: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Runs a program about `device` to its end; returns its status and at most `max_bytes` of its
/// output. `None` if it cannot be started or is not done within `limit`, and for a device that
/// still holds an earlier one. Blocks the thread for little more than the limit.
pub(super) fn run(
    command: &mut Command,
    device: &Path,
    limit: Duration,
    max_bytes: u64,
) -> Option<(ExitStatus, Vec<u8>)> {
    if stuck(|devices| devices.contains(device)) {
        return None;
    }
    command.env_clear().process_group(0).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let output = child.stdout.take().expect("a pipe");
    let (send, receive) = channel();
    // A thread of its own, since output may be longer than a pipe.
    let reader = Builder::new().name("output".to_owned()).spawn(move || {
        let mut bytes = Vec::new();
        if output.take(max_bytes).read_to_end(&mut bytes).is_ok() {
            let _ = send.send(bytes);
        }
    });
    let ended = if reader.is_ok() { ends_within(&mut child, limit) } else { None };
    let Some(status) = ended else {
        end(child, device);
        return None;
    };
    match receive.recv_timeout(GRACE) {
        Ok(bytes) => Some((status, bytes)),
        Err(_) => {
            // Its children hold the pipe, so the group is still its own.
            end_process_group(child.id());
            None
        }
    }
}

fn ends_within(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if begin.elapsed() < limit => sleep(LOOK),
            Ok(None) | Err(_) => return None,
        }
    }
}

/// Ends a program and its children. One that its device holds is waited for on a thread.
fn end(mut child: Child, device: &Path) {
    end_process_group(child.id());
    if ends_within(&mut child, GRACE).is_some() {
        return;
    }
    let device = device.to_owned();
    stuck(|devices| devices.insert(device.clone()));
    // Without a thread the device stays on the list: no program is started for it any more.
    let _ = Builder::new().name("stuck".to_owned()).spawn(move || {
        let _ = child.wait();
        stuck(|devices| devices.remove(&device));
    });
}

fn stuck<T>(work: impl FnOnce(&mut BTreeSet<PathBuf>) -> T) -> T {
    work(&mut STUCK.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output_of(script: &str, limit: Duration) -> Option<Vec<u8>> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdin(Stdio::null());
        run(&mut command, Path::new("/dev/none"), limit, 1000).map(|(_, bytes)| bytes)
    }

    #[test]
    fn a_program_that_hangs_or_floods_is_ended() {
        let long = Duration::from_secs(60);
        let short = Duration::from_millis(20);
        assert_eq!(output_of("echo a; exit 4", long).as_deref(), Some(&b"a\n"[..]));
        assert_eq!(output_of("/bin/sleep 1000", short), None);
        assert_eq!(output_of("/bin/sleep 1000 & /bin/sleep 1000", short), None);
        assert_eq!(output_of("exec /usr/bin/yes", long).map(|bytes| bytes.len()), Some(1000));
        assert_eq!(output_of("/bin/sleep 1000 & echo $!", long), None, "a child keeps the pipe");
    }

    #[test]
    fn no_program_is_started_for_a_device_that_holds_one() {
        let device = Path::new("/dev/held");
        let started = || run(&mut Command::new("/bin/true"), device, GRACE, 10).is_some();
        assert!(started());
        stuck(|devices| devices.insert(device.to_owned()));
        assert!(!started());
        stuck(|devices| devices.remove(device));
        assert!(started());
    }
}
