//! `pool scrub`: asks for every stripe to be read, compared and repaired; with `--wait` does it at
//! once.

use stripewise_pool::JobKind;

use crate::access::Access;
use crate::control::Control;
use crate::failure::{Result, pool_failure};
use crate::jobs::work;
use crate::messages::request::Scrub;
use crate::messages::response::{PoolChange, PoolChanged, Response};
use crate::pools::session::with_pool;

/// Carries it out.
pub async fn run(asked: &Scrub, control: &Control) -> Result<Response> {
    let name = &asked.pool.0;
    let what = format!("cannot scrub pool `{name}`");
    if asked.wait {
        let done =
            with_pool(control, name, Access::Change, &format!("pool scrub {name} --wait"), async |session| {
                session.show_notices();
                session.pool.scrub().await.map_err(|error| pool_failure(&what, &error))?;
                work(control, session, JobKind::Scrub).await
            })
            .await?;
        return Ok(Response::JobsDone(done));
    }
    let report = with_pool(control, name, Access::Change, &format!("pool scrub {name}"), async |session| {
        session.pool.scrub().await.map_err(|error| pool_failure(&what, &error))?;
        Ok(session.report())
    })
    .await?;
    Ok(Response::PoolChanged(PoolChanged::new(report, PoolChange::ScrubAsked, control.served.has(name))))
}
