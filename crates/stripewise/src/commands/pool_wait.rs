//! `pool wait`: works on a pool's jobs in the foreground until those of a kind are done.
//!
//! Expected faults: an interrupt (the work goes on from there next time), drives that fail
//! meanwhile, nothing to do.

use clap::Args;
use stripewise_control::access::Access;
use stripewise_control::names::PoolName;
use stripewise_control::pools::session::with_pool;
use stripewise_control::request::WaitForJob;
use stripewise_control::response::Response;
use stripewise_engine::pool::JobKind;

use crate::commands::App;
use crate::failure::Result;
use crate::jobs::work;

/// Run a pool's jobs in the foreground until they are done
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// rebuild, scrub, convert, destage, tier or rebalance
    #[arg(value_name = "JOB")]
    kind: JobKind,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> WaitForJob {
        WaitForJob { pool: self.name.clone(), job: self.kind }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &WaitForJob, app: &App) -> Result<Response> {
    let (name, kind) = (&asked.pool.0, asked.job);
    let done = with_pool(app, name, Access::Change, &format!("pool wait {name} {kind}"), async |session| {
        session.show_notices();
        work(app, session, kind).await
    })
    .await?;
    Ok(Response::JobsDone(done))
}
