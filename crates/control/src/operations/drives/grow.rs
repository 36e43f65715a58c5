//! `pool grow`: uses the space of drives that became larger. The layout of a drive is fixed when it
//! joins, so it leaves and joins again: at once if it holds nothing, else it is filled again from
//! the others. One drive at a time, so that no volume lacks more than one.
//!
//! Expected faults: no drive that became larger, volumes that cannot be read without the drive
//! (refused), less redundancy during the rebuild (requires `--yes`), another drive out of service.

use std::rc::Rc;

use stripewise_drive::Drive;
use stripewise_pool::{DriveId, JobKind};

use crate::access::Access;
use crate::control::Control;
use crate::drives::names::{find, id_of};
use crate::failure::{Failure, Result, pool_failure};
use crate::jobs::work;
use crate::messages::report::{DriveReport, PoolReport};
use crate::messages::request::GrowPool;
use crate::messages::response::{PoolChange, PoolChanged, Response};
use crate::notation::size::ByteSize;
use crate::pools::redundancy::notes_without;
use crate::pools::session::{Session, with_pool};

/// Executes `pool grow`.
pub async fn run(asked: &GrowPool, control: &Control) -> Result<Response> {
    let name = &asked.pool.0;
    let doing = format!("pool grow {name}");
    let (grown, left, report) = with_pool(control, name, Access::Change, &doing, async |session| {
        let chosen = chosen(asked, control, session).await?;
        let mut grown = Vec::new();
        let mut left = 0;
        for (at, (id, drive)) in chosen.iter().enumerate() {
            let report = session.report();
            let member = report.drives.iter().find(|drive| drive.id == id.to_string());
            let Some(member) = member else { continue };
            if is_filling(&report) {
                // The next one, when this one is full.
                left = chosen.len() - at;
                break;
            }
            grow(asked, control, session, member, (*id, drive.clone())).await?;
            grown.push(member.path.clone());
            if asked.wait {
                work(control, session, JobKind::Rebuild).await?;
            }
        }
        Ok((grown, left, session.report()))
    })
    .await?;
    let change = PoolChange::Grown { drives: grown, left };
    Ok(Response::PoolChanged(PoolChanged::new(report, change, control.served.has(name))))
}

/// The drives to grow: those named, else all that became larger.
async fn chosen(
    asked: &GrowPool,
    control: &Control,
    session: &Session,
) -> Result<Vec<(DriveId, Rc<dyn Drive>)>> {
    let (report, larger) = (session.report(), session.larger_drives());
    let mut named = Vec::new();
    for name in &asked.drives {
        let drive = find(&report, control, name).await?;
        if !larger.iter().any(|(id, _)| *id == id_of(drive)) {
            return Err(Failure::new(format!("{} has not become larger", drive.path))
                .hint("a daemon sees the new size when it opens the pool: restart it"));
        }
        named.push(drive.id.as_str());
    }
    let is_meant = |id: &DriveId| named.is_empty() || named.contains(&id.to_string().as_str());
    let chosen: Vec<_> = larger.into_iter().filter(|(id, _)| is_meant(id)).collect();
    if chosen.is_empty() {
        return Err(Failure::new(format!("no drive of pool `{}` has become larger", report.name))
            .hint("a daemon sees the new size when it opens the pool: restart it"));
    }
    Ok(chosen)
}

/// True if a rebuild has to end before another drive may leave.
fn is_filling(report: &PoolReport) -> bool {
    report.volumes.iter().any(|volume| volume.state != crate::messages::report::VolumeState::Online)
}

/// Takes one drive out, and in again with its new size.
async fn grow(
    asked: &GrowPool,
    control: &Control,
    session: &Session,
    member: &DriveReport,
    (id, drive): (DriveId, Rc<dyn Drive>),
) -> Result<()> {
    let name = &asked.pool.0;
    let what = format!("cannot use the new space of {}", member.path);
    let notes = notes_without(session, id, &format!("until {} is filled again", member.path))?;
    if !asked.yes && !notes.is_empty() {
        let of_volumes = notes.join("; ");
        return Err(Failure::usage(format!(
            "{} holds {} of volumes and is filled again from the other drives: {of_volumes}",
            member.path,
            ByteSize(member.allocated_bytes)
        ))
        .hint(format!("to confirm: stripewise pool grow {name} --yes")));
    }
    session.pool.offline(id).await.map_err(|error| pool_failure(&what, &error))?;
    if let Err(error) = session.pool.replace(id, drive, false).await {
        // It goes on as it was.
        let back = session.pool.online(id, None).await;
        back.map_err(|error| pool_failure(format!("cannot bring {} back", member.path), &error))?;
        return Err(pool_failure(&what, &error));
    }
    notes.into_iter().for_each(|note| control.note(note));
    Ok(())
}
