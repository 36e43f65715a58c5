//! How a pool stands that another process has open: read from what that process leaves beside the
//! list of pools.
//!
//! Expected faults: a process that was killed (its lock is gone, so its word is passed over), one
//! that has only begun, one of another version of this program (its word cannot be read).

use std::time::Instant;

use crate::control::Control;
use crate::failure::Result;
use crate::pools::status_file::StatusFile;
use crate::registry::{KnownPool, PATIENCE, Registry};

/// How often a process that is about to leave word is looked at.
const LOOK_NS: u64 = 20_000_000;

/// What the process that works on the pool says now; `None` where none does, or it has not said
/// anything yet.
pub fn read(registry: &Registry, known: &KnownPool) -> Option<StatusFile> {
    let user = registry.pool_user(known)?;
    let text = std::fs::read(registry.status_path(&known.id)).ok()?;
    let mut word: StatusFile = serde_json::from_slice(&text).ok()?;
    word.report.notices.push(format!("in use by {user}"));
    Some(word)
}

/// As [`read`], waiting for a process that has the pool to say something or to end: most commands
/// are done in no time, the others leave word soon.
///
/// `None` at once for a pool that this process serves: it knows better.
pub async fn wait_for(
    control: &Control,
    registry: &Registry,
    known: &KnownPool,
) -> Result<Option<StatusFile>> {
    control.served.until_come(&known.name).await;
    if control.served.has(&known.name) {
        return Ok(None);
    }
    // A daemon says it better itself; unless the command has been passed on to one already.
    if control.caller().is_none()
        && let Some(failure) = registry.taken_elsewhere(known)
    {
        return Err(failure);
    }
    wait_for_status(control, registry, known).await
}

/// As [`wait_for`], for what is counted from one word left to the next: a daemon leaves them too.
pub async fn wait_for_status(
    control: &Control,
    registry: &Registry,
    known: &KnownPool,
) -> Result<Option<StatusFile>> {
    let context = control.executor()?.context();
    let begin = Instant::now();
    while registry.pool_user(known).is_some() && begin.elapsed() <= PATIENCE {
        if let Some(word) = read(registry, known) {
            return Ok(Some(word));
        }
        context.sleep_ns(LOOK_NS).await;
    }
    Ok(None)
}
