//! `pool online`: brings a drive back that was offline or absent. A rebuild job of the pool first
//! copies the regions that changed in its absence. A daemon's pool that lost more drives than it
//! tolerates is reopened (`reopen.rs`).
//!
//! Expected faults: a drive that is missing, belongs to another pool by now, or was replaced.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use stripewise_drive::Drive;
use stripewise_pool::{DriveId, JobKind, inspect};

use crate::access::Access;
use crate::control::Control;
use crate::drives::names::{find, id_of};
use crate::drives::rights::permitted;
use crate::failure::{Failure, Result, pool_failure};
use crate::jobs::work;
use crate::messages::report::DriveState;
use crate::messages::request::BringOnline;
use crate::messages::response::{PoolChange, PoolChanged, Response};
use crate::pools::reopen::open_if_that_helps;
use crate::pools::session::{Session, with_pool};

/// Maximum attempts to reopen a drive whose path exists.
const MOST_TRIES: u32 = 30;
/// Interval between the attempts.
const LOOK_NS: u64 = 100_000_000;

/// Executes `pool online`.
pub async fn run(asked: &BringOnline, control: &Control) -> Result<Response> {
    let name = &asked.pool.0;
    let what = format!("cannot bring {} of pool `{name}` online", asked.drive);
    let was_reopened = open_if_that_helps(control, name, &asked.drive).await?;
    let (path, report) =
        with_pool(control, name, Access::Change, &format!("pool online {name}"), async |session| {
            let in_use = if was_reopened { in_use(control, session, &asked.drive) } else { None };
            let path = match in_use {
                Some(path) => path,
                None => {
                    let (id, path, drive) = find_or_open(control, session, &asked.drive).await?;
                    let done = session.pool.online(id, drive).await;
                    done.map_err(|error| pool_failure(what, &error))?;
                    path
                }
            };
            if asked.wait {
                work(control, session, JobKind::Rebuild).await?;
            }
            Ok((path, session.report()))
        })
        .await?;
    Ok(Response::PoolChanged(PoolChanged::new(
        report,
        PoolChange::DriveOnline { path, was_reopened },
        control.served.has(name),
    )))
}

/// The path of a drive that came back when its pool was reopened: it is in service, or will be once
/// the pool's jobs reach it.
fn in_use(control: &Control, session: &Session, name: &str) -> Option<String> {
    let report = session.report();
    let drive = find(&report, control, name).ok()?;
    (drive.state.takes_part() || drive.state == DriveState::Behind).then(|| drive.path.clone())
}

/// Identity and path of a returning drive, and the drive itself unless the pool has it open.
type Returning = (DriveId, String, Option<Rc<dyn Drive>>);

/// Opens the drive of the pool that belongs at this path, if it is there. After a short absence,
/// requests in flight may still keep it locked, so this retries.
async fn open_again(control: &Control, session: &Session, id: DriveId, path: &str) -> Option<Rc<dyn Drive>> {
    let candidate = permitted(control, Path::new(path)).await.ok()?;
    for _ in 0..MOST_TRIES {
        session.forget_vanished().await;
        if let Ok(opened) = session.open_new_drive(&candidate, false).await {
            match inspect(&*opened.bare).await {
                Ok(Some(label)) if label.drive_id == id => return Some(opened.drive),
                Ok(_) => return None,
                Err(_) => {}
            }
        }
        let of_thread = PathBuf::from(path);
        if !matches!(control.look(Path::new(path), move || of_thread.exists()).await, Ok(true)) {
            return None;
        }
        session.executor().context().sleep_ns(LOOK_NS).await;
    }
    None
}

/// Finds a drive by its name in the pool, or by the superblock at a path if it was moved.
async fn find_or_open(control: &Control, session: &Session, name: &str) -> Result<Returning> {
    let report = session.report();
    let unknown = match find(&report, control, name) {
        Ok(drive) => {
            let (id, path) = (id_of(drive), drive.path.clone());
            // A pool that was opened just now has all present drives.
            let again = if session.is_lent() { open_again(control, session, id, &path).await } else { None };
            return Ok((id, path, again));
        }
        Err(unknown) => unknown,
    };
    let Ok(candidate) = permitted(control, Path::new(name)).await else { return Err(unknown) };
    let opened = session.open_new_drive(&candidate, false).await?;
    let path = candidate.path.display().to_string();
    match inspect(&*opened.bare).await {
        Ok(Some(label)) => Ok((label.drive_id, path, Some(opened.drive))),
        _ => Err(Failure::new(format!("{path} is not a drive of pool `{}`", report.name)).hint(format!(
            "add a new drive with `stripewise pool add {0} {name}` or `stripewise pool replace {0} OLD {name}`",
            report.name
        ))),
    }
}
