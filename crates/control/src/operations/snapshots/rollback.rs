//! `snapshot rollback`: gives a volume the contents of a snapshot. All that was written since is
//! lost.
//!
//! Expected faults: clients that have the volume open, snapshots that were taken later.

use crate::access::Access;
use crate::control::Control;
use crate::failure::{Result, pool_failure};
use crate::messages::request::RollBack;
use crate::messages::response::{Response, SnapshotChange, SnapshotsChanged};
use crate::operations::snapshots::reports_beside;
use crate::pools::session::with_pool;
use crate::registry::stacking::refuse_if_used;

/// Carries it out.
pub async fn run(asked: &RollBack, control: &Control) -> Result<Response> {
    let (name, path) = (&asked.snapshot, asked.snapshot.path());
    let pool = &name.volume.pool;
    let what = format!("roll back to snapshot `{name}`");
    refuse_if_used(&control.registry()?, &what, pool, Some(&path.volume))?;
    let _held = control.served.hold(&what, pool, Some(&path.volume))?;
    let names = vec![name.clone()];
    let snapshots = with_pool(control, pool, Access::Change, "snapshot rollback", async |session| {
        let failed = |error| pool_failure(format!("cannot {what}"), &error);
        let mut held = Vec::new();
        if asked.delete_newer {
            for newer in session.pool.newer_snapshots(&path).map_err(failed)? {
                let newer = format!("{}@{newer}", path.volume);
                held.push(control.served.hold(&what, pool, Some(&newer))?);
            }
        }
        session.pool.roll_back(&path, asked.delete_newer).await.map_err(failed)?;
        reports_beside(session, &names)
    })
    .await?;
    let change = SnapshotChange::RolledBack;
    Ok(Response::SnapshotsChanged(SnapshotsChanged { snapshots, names, change }))
}
