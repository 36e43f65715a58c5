//! Reading the status file of a pool that another process has open.
//!
//! Expected faults: a killed process (without its lock, the file is ignored), one that has not
//! written the file yet, one of another version of this program (the file is unreadable).

use std::time::Instant;

use crate::control::Control;
use crate::failure::Result;
use crate::pools::status_file::StatusFile;
use crate::registry::{KnownPool, PATIENCE, Registry};

/// Interval between checks for a status file.
const LOOK_NS: u64 = 20_000_000;

/// Reads the status file of the process that uses the pool; `None` if there is no such process, or
/// it has not written the file yet.
pub fn read(registry: &Registry, known: &KnownPool) -> Option<StatusFile> {
    let user = registry.pool_user(known)?;
    let text = std::fs::read(registry.status_path(&known.id)).ok()?;
    let mut status: StatusFile = serde_json::from_slice(&text).ok()?;
    status.report.notices.push(format!("in use by {user}"));
    Some(status)
}

/// As [`read`], but waits until the process that uses the pool writes a status file or exits: most
/// commands are short, and the others write it soon.
///
/// `None` at once for a pool that this process serves, since its own state is more current.
pub async fn wait_for(
    control: &Control,
    registry: &Registry,
    known: &KnownPool,
) -> Result<Option<StatusFile>> {
    control.served.until_come(&known.name).await;
    if control.served.has(&known.name) {
        return Ok(None);
    }
    // A daemon's own answer is more current, unless this is the daemon that executes the command.
    if control.caller().is_none()
        && let Some(failure) = registry.taken_elsewhere(known)
    {
        return Err(failure);
    }
    wait_for_status(control, registry, known).await
}

/// As [`wait_for`], but also reads the status file of a daemon: for counters compared between two
/// files.
pub async fn wait_for_status(
    control: &Control,
    registry: &Registry,
    known: &KnownPool,
) -> Result<Option<StatusFile>> {
    let context = control.executor()?.context();
    let begin = Instant::now();
    while registry.pool_user(known).is_some() && begin.elapsed() <= PATIENCE {
        if let Some(status) = read(registry, known) {
            return Ok(Some(status));
        }
        context.sleep_ns(LOOK_NS).await;
    }
    Ok(None)
}
