//! `snapshot clone`: makes a volume that begins as a snapshot and shares its blocks.
//!
//! Expected faults: names that are taken, snapshots that do not exist, another pool.

use crate::access::Access;
use crate::control::Control;
use crate::failure::{Failure, Result, pool_failure};
use crate::messages::request::CloneSnapshot;
use crate::messages::response::{Response, VolumeChange, VolumeChanged};
use crate::pools::session::with_pool;

/// Carries it out.
pub async fn run(asked: &CloneSnapshot, control: &Control) -> Result<Response> {
    let (snapshot, name) = (&asked.snapshot, &asked.target);
    if snapshot.volume.pool != name.pool {
        return Err(Failure::usage(format!("{snapshot} and {name} are of different pools")).hint(format!(
            "a clone is in the pool of its snapshot; to copy it: `stripewise snapshot send {snapshot} | \
             stripewise snapshot receive {name}`"
        )));
    }
    let what = format!("cannot clone snapshot `{snapshot}`");
    let volume = with_pool(control, &name.pool, Access::Change, "snapshot clone", async |session| {
        let made = session.pool.clone_snapshot(&snapshot.path(), &name.volume).await;
        made.map_err(|error| pool_failure(&what, &error))?;
        session.volume_report(name)
    })
    .await?;
    Ok(Response::VolumeChanged(VolumeChanged {
        interleave_choice: None,
        volumes: vec![volume],
        name: name.clone(),
        change: VolumeChange::Cloned { of: snapshot.to_string() },
    }))
}
