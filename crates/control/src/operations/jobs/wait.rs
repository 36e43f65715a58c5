//! `pool wait`: works on a pool's jobs in the foreground until those of a kind are done.
//!
//! Expected faults: an interrupt (the work goes on from there next time), drives that fail
//! meanwhile, nothing to do.

use crate::access::Access;
use crate::control::Control;
use crate::failure::Result;
use crate::jobs::work;
use crate::messages::request::WaitForJob;
use crate::messages::response::Response;
use crate::pools::session::with_pool;

/// Carries it out.
pub async fn run(asked: &WaitForJob, control: &Control) -> Result<Response> {
    let (name, kind) = (&asked.pool.0, asked.job);
    let done =
        with_pool(control, name, Access::Change, &format!("pool wait {name} {kind}"), async |session| {
            session.show_notices();
            work(control, session, kind).await
        })
        .await?;
    Ok(Response::JobsDone(done))
}
