//! `snapshot delete`: gives up snapshots. What only they hold becomes free.
//!
//! Expected faults: names that do not exist, snapshots that a client has open.

use stripewise_pool::SnapshotPath;

use crate::access::Access;
use crate::control::Control;
use crate::failure::{Result, pool_failure};
use crate::messages::request::DeleteSnapshots;
use crate::messages::response::{Response, SnapshotChange, SnapshotsChanged};
use crate::notation::names::SnapshotName;
use crate::operations::snapshots::{by_pool, in_words, reports_beside};
use crate::pools::session::with_pool;

/// Carries it out.
pub async fn run(asked: &DeleteSnapshots, control: &Control) -> Result<Response> {
    let mut snapshots = Vec::new();
    for (pool, names) in by_pool(&asked.snapshots) {
        let what = in_words(&names);
        let hold = |name: &SnapshotName| {
            let path = name.path().to_string();
            control.served.hold(&format!("delete snapshot `{name}`"), &pool, Some(&path))
        };
        let _held = names.iter().map(hold).collect::<Result<Vec<_>>>()?;
        let left = with_pool(control, &pool, Access::Change, "snapshot delete", async |session| {
            let paths: Vec<SnapshotPath> = names.iter().map(SnapshotName::path).collect();
            let deleted = session.pool.delete_snapshots(&paths).await;
            deleted.map_err(|error| pool_failure(format!("cannot delete {what}"), &error))?;
            reports_beside(session, &names)
        });
        snapshots.extend(left.await?);
    }
    let (names, change) = (asked.snapshots.clone(), SnapshotChange::Deleted);
    Ok(Response::SnapshotsChanged(SnapshotsChanged { snapshots, names, change }))
}
