//! Reopening pools of a daemon that lost more drives than a volume can lose. The volume's data
//! stays as it is, so it is complete again when the drives are back; but writes in flight are lost,
//! so the volume takes no writes until the pool is reopened, as after a crash: with the present
//! drives and their journals. `pool online` reopens it once the drives that it needs are there;
//! `pool status` says so.
//!
//! Expected faults: drives that are named but not there (nothing is closed then: other volumes of
//! the pool may be in use); commands and requests that still hold the pool (waited for, a bounded
//! time); an opening that fails (the daemon goes on trying).

use std::path::{Path, PathBuf};

use stripewise_drive::Context;
use stripewise_pool::{DriveId, DriveStatus, inspect};
use stripewise_runtime::OpenOptions;

use crate::control::Control;
use crate::daemon::serving::open;
use crate::drives::candidates::{Identity, Place, noted_export, noted_place};
use crate::drives::network;
use crate::drives::opened::look_open;
use crate::drives::rights::permitted;
use crate::failure::{Failure, Result};
use crate::pools::reconnect::close;
use crate::pools::session::Session;
use crate::pools::standstill::{Standstill, standstill};

/// Maximum time for the closed pool to release its drives. Its requests have timeouts; holding on
/// for longer is a bug here.
const LET_GO_NS: u64 = 40_000_000_000;
const LOOK_NS: u64 = 20_000_000;

/// Reopens a pool of this daemon if a drive can only return that way, and all needed drives are
/// there. `name`: the drive as typed. Returns `true` if it was reopened.
pub(crate) async fn open_if_that_helps(control: &Control, pool: &str, name: &str) -> Result<bool> {
    let Some(session) = Session::served(control, pool) else { return Ok(false) };
    let moved = moved_drive(control, &session, name).await;
    let place = |drive: &DriveStatus| match &moved {
        Some((id, path)) if *id == drive.id => path.clone(),
        _ => PathBuf::from(&drive.path),
    };
    match standstill(&session.pool) {
        None => return Ok(false),
        Some(Standstill::Protected(_) | Standstill::Full) => {}
        Some(Standstill::Lacking(drives)) => {
            for drive in &drives {
                if !is_there(control, &session, &place(drive), drive.id).await {
                    return Ok(false);
                }
            }
        }
    }
    drop(session);
    // Commands that have their turn may be waiting for the pool to be served.
    control.without_turn(close_and_open(control, pool, moved)).await?;
    Ok(true)
}

/// The drive of the pool at the typed path, if the pool knows another path for it.
async fn moved_drive(control: &Control, session: &Session, name: &str) -> Option<(DriveId, PathBuf)> {
    let candidate = control.without_turn(permitted(control, Path::new(name))).await.ok()?;
    // The drive that is opened has to be the one that the caller may use.
    let drive = control.without_turn(drive_at(control, session, &candidate.path)).await?;
    let id = (candidate.is_path() && drive.identity == candidate.identity).then_some(drive.id)?;
    let status = session.pool.status();
    let known = status.drives.iter().find(|drive| drive.id == id)?;
    (Path::new(&known.path) != candidate.path).then_some((id, candidate.path))
}

/// A drive of the pool that was found at a path.
struct AtPath {
    id: DriveId,
    /// The identity of what was opened and read.
    identity: Identity,
}

/// The drive of the pool that is readable at a path.
async fn drive_at(control: &Control, session: &Session, path: &Path) -> Option<AtPath> {
    let executor = session.executor();
    let opened = match noted_export(path) {
        Some(uri) => network::open(executor, &uri, true).await.ok()?,
        None => {
            let options = OpenOptions { read_only: true, lock: false, buffered: false };
            look_open(control, executor, path, &options).await.ok()?
        }
    };
    let label = inspect(&*opened.bare).await.ok().flatten()?;
    let identity = opened.identity;
    (label.pool_id == session.pool.id()).then_some(AtPath { id: label.drive_id, identity })
}

async fn is_there(control: &Control, session: &Session, path: &Path, id: DriveId) -> bool {
    match noted_place(path) {
        // Opening the pool checks the volume itself.
        Place::Volume(volume) => control.served.has(&volume.pool),
        Place::Path(_) | Place::Network(_) => {
            let found = control.without_turn(drive_at(control, session, path)).await;
            found.is_some_and(|found| found.id == id)
        }
    }
}

/// Closes a pool of this daemon, as a crash would if need be, and opens it with all drives that are
/// there.
async fn close_and_open(control: &Control, name: &str, moved: Option<(DriveId, PathBuf)>) -> Result<()> {
    let context = control.executor()?.context();
    // Keeps other tasks from opening it in between.
    let _coming = control.served.comes(name);
    let Some(session) = Session::end_serving(control, name) else { return Ok(()) };
    control.note(format!("pool {name} is reopened: clients of its volumes get errors, and can reconnect"));
    let is_let_go = session.let_go();
    let mut pool = close(&context, session).await;
    if let Some((id, path)) = moved {
        let of_it = pool.drives.iter_mut().find(|drive| drive.id == id.to_string());
        of_it.into_iter().for_each(|drive| drive.path.clone_from(&path));
        control.registry()?.remember(&context, pool.clone()).await?;
    }
    let opened = match until(&context, is_let_go).await {
        true => {
            network::wait_for_late_writes(&context, &pool).await;
            open(control, &pool).await
        }
        false => Err(Failure::new(format!(
            "pool `{name}` is closed, but its drives are still in use by this process"
        ))),
    };
    opened.map_err(|failure| {
        let hint = "the daemon keeps trying; `stripewise pool status` shows the reason";
        control.served.is_to_come(pool);
        let failure = Failure {
            message: format!("pool `{name}` was closed and could not be reopened: {}", failure.message),
            ..failure
        };
        failure.hint(hint)
    })
}

/// Waits, a bounded time, for a condition; `true` if it holds.
async fn until(context: &Context, is_so: impl Fn() -> bool) -> bool {
    let end_ns = context.now_ns() + LET_GO_NS;
    while !is_so() {
        if context.now_ns() > end_ns {
            return false;
        }
        context.sleep_ns(LOOK_NS).await;
    }
    true
}
