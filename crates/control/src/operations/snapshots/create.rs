//! `snapshot create`: keeps what volumes hold now. Snapshots of one pool are of one instant.
//!
//! Expected faults: volumes that have no snapshots, names that are taken, no room for more.

use stripewise_pool::SnapshotPath;

use crate::access::Access;
use crate::control::Control;
use crate::failure::{Result, pool_failure};
use crate::messages::request::CreateSnapshots;
use crate::messages::response::{Response, SnapshotChange, SnapshotsChanged};
use crate::notation::names::SnapshotName;
use crate::operations::snapshots::{by_pool, in_words, reports_beside};
use crate::pools::session::with_pool;

/// Carries it out.
pub async fn run(asked: &CreateSnapshots, control: &Control) -> Result<Response> {
    let mut snapshots = Vec::new();
    for (pool, names) in by_pool(&asked.snapshots) {
        let what = in_words(&names);
        let taken = with_pool(control, &pool, Access::Change, "snapshot create", async |session| {
            let paths: Vec<SnapshotPath> = names.iter().map(SnapshotName::path).collect();
            let created = session.pool.create_snapshots(&paths).await;
            created.map_err(|error| pool_failure(format!("cannot take {what}"), &error))?;
            reports_beside(session, &names)
        });
        snapshots.extend(taken.await?);
    }
    let (names, change) = (asked.snapshots.clone(), SnapshotChange::Created);
    Ok(Response::SnapshotsChanged(SnapshotsChanged { snapshots, names, change }))
}
