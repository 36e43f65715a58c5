//! `pool destroy`: erases a pool from its drives. What volumes held is not overwritten, but nothing
//! finds it any more.
//!
//! Expected faults: drives that are not there (they keep their superblock; said so), a command line
//! without `--yes`.

use crate::access::Access;
use crate::control::Control;
use crate::failure::Result;
use crate::messages::request::DestroyPool;
use crate::messages::response::{PoolChange, PoolChanged, Response};
use crate::operations::unconfirmed;
use crate::pools::session::{Session, with_pool};
use crate::registry::stacking::refuse_if_used;

/// Carries it out.
pub async fn run(asked: &DestroyPool, control: &Control) -> Result<Response> {
    let name = &asked.pool.0;
    let registry = control.registry()?;
    registry.pool(name)?;
    let what = format!("destroy pool `{name}`");
    refuse_if_used(&registry, &what, name, None)?;
    let _held = control.served.hold(&what, name, None)?;
    let doing = format!("pool destroy {name}");
    if !asked.yes {
        let meant = with_pool(control, name, Access::Look, &doing, async |session| {
            Ok(session.report().with_identity_and_drives())
        })
        .await?;
        return Err(unconfirmed(&doing, &format!("destroying {meant} loses all of its volumes")));
    }
    let session = Session::open(control, name, Access::Change, &doing).await?;
    let report = session.report();
    control.warning(format!("destroying {}", report.with_identity_and_drives()));
    session.destroy().await?;
    for drive in report.drives.iter().filter(|drive| !drive.state.takes_part()) {
        control.warning(format!(
            "{} ({}) was {}: it still says that it belongs to the pool",
            drive.path, drive.id, drive.state
        ));
    }
    Ok(Response::PoolChanged(PoolChanged::new(report, PoolChange::Destroyed, control.served.has(name))))
}
