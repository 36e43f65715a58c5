//! `pool replace`: a new drive in the place of an old one. An old drive that works is used until
//! the new one has all that it holds; one that is gone is rebuilt from the others. The work belongs
//! to the pool; with `--wait` it is done at once.
//!
//! Expected faults: an old drive that is long gone (named by its last path or identity) or being
//! replaced already, a new one that holds something, is too small, or belongs to the pool already.

use std::path::Path;

use stripewise_pool::JobKind;

use crate::access::Access;
use crate::control::Control;
use crate::drives::names::{find, id_of};
use crate::drives::rights::permitted;
use crate::failure::{Result, pool_failure};
use crate::jobs::work;
use crate::messages::report::PoolReport;
use crate::messages::request::ReplaceDrive;
use crate::messages::response::{PoolChange, PoolChanged, Response};
use crate::pools::redundancy::tell_without;
use crate::pools::session::with_pool;

/// Carries it out.
pub async fn run(asked: &ReplaceDrive, control: &Control) -> Result<Response> {
    let name = &asked.pool.0;
    let what = format!("cannot replace {} in pool `{name}`", asked.old);
    let done = with_pool(control, name, Access::Change, &format!("pool replace {name}"), async |session| {
        let report = session.report();
        let old = find(&report, control, &asked.old)?;
        let old_id = id_of(old);
        match old.state.takes_part() {
            true => control.note(format!(
                "no volume loses redundancy while {} is replaced: it is used until the new drive is full",
                old.path
            )),
            false => tell_without(control, session, old, old_id, "until the new drive is rebuilt")?,
        }
        let replaced = match find(&report, control, &asked.new).ok().filter(|drive| drive.role == "spare") {
            Some(spare) => session.pool.replace_by_spare(old_id, id_of(spare)).await,
            None => {
                let candidate = permitted(control, Path::new(&asked.new)).await?;
                let opened = session.open_new_drive(&candidate, asked.force).await?;
                let replacing = session.pool.replace(old_id, opened.drive.clone(), asked.force);
                replacing.await.map(|_| ())
            }
        };
        replaced.map_err(|error| pool_failure(&what, &error))?;
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

enum Outcome {
    Rebuilt(crate::jobs::Done),
    Due(Box<PoolReport>),
}
