//! `pool replace`: a new drive in the place of an old one. An old drive that works is used until
//! the new one has all that it holds; one that is gone is rebuilt from the others. The work belongs
//! to the pool; with `--wait` it is done at once.
//!
//! Expected faults: an old drive that is long gone (named by its last path or identity) or being
//! replaced already, a new one that holds something, is too small, or belongs to the pool already,
//! one with which the pool has less space (requires `--yes`).

use std::path::Path;

use stripewise_pool::{JobKind, usable_bytes};

use crate::access::Access;
use crate::control::Control;
use crate::drives::names::{find, id_of};
use crate::drives::opened::OpenedDrive;
use crate::drives::rights::permitted;
use crate::failure::{Result, pool_failure};
use crate::jobs::work;
use crate::messages::report::{DriveReport, PoolReport};
use crate::messages::request::ReplaceDrive;
use crate::messages::response::{PoolChange, PoolChanged, Response};
use crate::operations::drives::sizes::check_replacement;
use crate::pools::redundancy::notes_without;
use crate::pools::session::with_pool;

/// Carries it out.
pub async fn run(asked: &ReplaceDrive, control: &Control) -> Result<Response> {
    let name = &asked.pool.0;
    let what = format!("cannot replace {} in pool `{name}`", asked.old);
    let done = with_pool(control, name, Access::Change, &format!("pool replace {name}"), async |session| {
        let report = session.report();
        let old = find(&report, control, &asked.old).await?;
        let old_id = id_of(old);
        let spare = find(&report, control, &asked.new).await.ok().filter(|drive| drive.role == "spare");
        let new = match spare {
            Some(spare) => New::Spare(spare),
            None => {
                let candidate = permitted(control, Path::new(&asked.new)).await?;
                candidate.refuse_long_name()?;
                New::Opened(Box::new(session.open_new_drive(&candidate, asked.force).await?))
            }
        };
        let (path, capacity_bytes) = new.path_and_capacity();
        let checked = session.pool.check_replacement(old_id, &path, capacity_bytes);
        checked.map_err(|error| pool_failure(&what, &error))?;
        let bytes = usable_bytes(capacity_bytes, report.slab_bytes);
        check_replacement(control, &report, old, (&path, bytes), asked.yes)?;
        let notes = match old.state.takes_part() {
            true => vec![format!(
                "no volume loses redundancy while {} is replaced: it is used until the new drive is full",
                old.path
            )],
            false => notes_without(session, old_id, "until the new drive is rebuilt")?,
        };
        let replaced = match &new {
            New::Spare(spare) => session.pool.replace_by_spare(old_id, id_of(spare)).await,
            New::Opened(opened) => {
                session.pool.replace(old_id, opened.drive.clone(), asked.force).await.map(|_| ())
            }
        };
        replaced.map_err(|error| pool_failure(&what, &error))?;
        notes.into_iter().for_each(|note| control.note(note));
        if asked.wait {
            return work(control, session, JobKind::Rebuild).await.map(Outcome::Rebuilt);
        }
        Ok(Outcome::Due(Box::new(session.report())))
    })
    .await?;
    let report = match done {
        Outcome::Rebuilt(done) => return Ok(Response::JobsDone(done)),
        Outcome::Due(report) => *report,
    };
    let change = PoolChange::DriveReplaced { old: asked.old.clone(), new: asked.new.clone() };
    Ok(Response::PoolChanged(PoolChanged::new(report, change, control.served.has(name))))
}

/// The drive that comes.
enum New<'a> {
    Spare(&'a DriveReport),
    Opened(Box<OpenedDrive>),
}

impl New<'_> {
    fn path_and_capacity(&self) -> (String, u64) {
        match self {
            Self::Spare(spare) => (spare.path.clone(), spare.capacity_bytes),
            Self::Opened(opened) => {
                let info = opened.drive.info();
                (info.label.to_string(), info.capacity_bytes)
            }
        }
    }
}

enum Outcome {
    Rebuilt(crate::jobs::Done),
    Due(Box<PoolReport>),
}
