//! `pool scrub`: asks for every stripe to be read, compared and repaired; with `--wait` does it at
//! once.

use clap::Args;
use stripewise_control::access::Access;
use stripewise_control::failure::pool_failure;
use stripewise_control::names::PoolName;
use stripewise_control::pools::session::with_pool;
use stripewise_control::request::Scrub;
use stripewise_control::response::{PoolChange, PoolChanged, Response};
use stripewise_engine::pool::JobKind;

use crate::commands::App;
use crate::failure::Result;
use crate::jobs::work;

/// Verify every stripe, repair errors, and name the drive that caused them
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Do it now, in the foreground, instead of whenever the pool's jobs are worked on
    #[arg(long)]
    wait: bool,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> Scrub {
        Scrub { pool: self.name.clone(), wait: self.wait }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &Scrub, app: &App) -> Result<Response> {
    let name = &asked.pool.0;
    let what = format!("cannot scrub pool `{name}`");
    if asked.wait {
        let done =
            with_pool(app, name, Access::Change, &format!("pool scrub {name} --wait"), async |session| {
                session.show_notices();
                session.pool.scrub().await.map_err(|error| pool_failure(&what, &error))?;
                work(app, session, JobKind::Scrub).await
            })
            .await?;
        return Ok(Response::JobsDone(done));
    }
    let report = with_pool(app, name, Access::Change, &format!("pool scrub {name}"), async |session| {
        session.pool.scrub().await.map_err(|error| pool_failure(&what, &error))?;
        Ok(session.report())
    })
    .await?;
    Ok(Response::PoolChanged(PoolChanged::new(report, PoolChange::ScrubAsked, app.served.has(name))))
}
