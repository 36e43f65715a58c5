//! `pool destroy`: ends a pool with all that is in it. Its drives are marked as those of a
//! destroyed pool, and are free; until they are used, `pool import --destroyed` brings the pool
//! back. With `--wipe` the drives are erased instead.
//!
//! Expected faults: drives that are not there (they keep their superblock; said so), a command line
//! without `--yes`, a run that is interrupted when some drives are marked (the next one goes on).

use crate::access::Access;
use crate::control::Control;
use crate::failure::Result;
use crate::messages::request::DestroyPool;
use crate::messages::response::{PoolChange, PoolChanged, Response};
use crate::operations::unconfirmed;
use crate::pools::session::{Session, with_pool};
use crate::registry::stacking::refuse_if_used;

/// Destroys the pool.
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
        let (option, loss) = match asked.wipe {
            true => (" --wipe", "erases all of its volumes for good"),
            false => ("", "loses all of its volumes"),
        };
        return Err(unconfirmed(&format!("{doing}{option}"), &format!("destroying {meant} {loss}")));
    }
    let session = Session::open_to_destroy(control, name, &doing).await?;
    let report = session.report();
    control.warning(format!("destroying {}", report.with_identity_and_drives()));
    session.destroy(asked.wipe).await?;
    for drive in report.drives.iter().filter(|drive| !drive.state.takes_part()) {
        control.warning(format!(
            "{} ({}) was {}: it still says that it belongs to the pool; `stripewise drive clear` \
             erases it",
            drive.path, drive.id, drive.state
        ));
    }
    Ok(Response::PoolChanged(PoolChanged::new(
        report,
        PoolChange::Destroyed { wiped: asked.wipe },
        control.served.has(name),
    )))
}
