//! `pool scrub`: reads, compares and repairs every stripe: in the daemon if it serves the pool
//! (`--wait` waits for that), else in the foreground, since nothing else would do it. With
//! `--check-only` it reads and compares, and writes nothing.
//!
//! Expected faults: an interrupt (a scrub is resumed by the next process, a check ends).

use stripewise_pool::JobKind;

use crate::access::Access;
use crate::control::Control;
use crate::failure::{Result, pool_failure};
use crate::jobs::{check, work};
use crate::messages::request::Scrub;
use crate::messages::response::{PoolChange, PoolChanged, Response};
use crate::pools::session::with_pool;

/// Carries it out.
pub async fn run(asked: &Scrub, control: &Control) -> Result<Response> {
    let name = &asked.pool.0;
    let what = format!("cannot scrub pool `{name}`");
    if asked.check_only {
        let doing = format!("pool scrub {name} --check-only");
        let done =
            with_pool(control, name, Access::Look, &doing, async |session| check(control, session).await);
        return Ok(Response::JobsDone(done.await?));
    }
    if asked.wait || !control.served.has(name) {
        let done = with_pool(control, name, Access::Change, &format!("pool scrub {name}"), async |session| {
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
    Ok(Response::PoolChanged(PoolChanged::new(report, PoolChange::ScrubAsked, true)))
}
