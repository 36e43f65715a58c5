//! `pool wait`: runs a pool's jobs in the foreground until those of one kind are done.
//!
//! Expected faults: an interrupt (the next run resumes), drives that fail during the job, no job to
//! run.

use crate::access::Access;
use crate::control::Control;
use crate::failure::Result;
use crate::jobs::work;
use crate::messages::request::WaitForJob;
use crate::messages::response::Response;
use crate::pools::session::with_pool;

/// Executes `pool wait`.
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
