//! `pool status`: how pools are, and what to type next. Looks only; beside a process that works on
//! the pool it shows what that one says.
//!
//! Expected faults: drives that are gone, all of them even; a pool in use.

use clap::Args;
use stripewise_control::access::Access;
use stripewise_control::names::PoolName;
use stripewise_control::pools::other_process;
use stripewise_control::pools::session::with_pool;
use stripewise_control::registry::{Home, KnownPool};
use stripewise_control::report::PoolReport;
use stripewise_control::request::ShowPools;
use stripewise_control::response::{Pools, Response};

use crate::commands::App;
use crate::failure::{Reason, Result};

/// Show the state of pools, and the next command to run. Exit code 0: all is well, 3: works but
/// degraded, 1: failed
#[derive(Args)]
pub(crate) struct Options {
    /// The pool; all known ones if left out
    #[arg(value_name = "POOL")]
    name: Option<PoolName>,
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ShowPools {
        ShowPools { pool: self.name.clone() }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &ShowPools, app: &App) -> Result<Response> {
    let home = app.home()?;
    let known = match &asked.pool {
        Some(name) => vec![home.pool(&name.0)?],
        None => home.pools()?,
    };
    let mut pools = Vec::new();
    for pool in &known {
        pools.push(report(app, &home, pool).await?);
    }
    Ok(Response::Pools(Pools { pools }))
}

async fn report(app: &App, home: &Home, known: &KnownPool) -> Result<PoolReport> {
    if let Some(word) = other_process::wait_for(app, home, known).await? {
        return Ok(word.report);
    }
    match with_pool(app, &known.name, Access::Look, "pool status", async |session| Ok(session.report())).await
    {
        Ok(report) => Ok(report),
        Err(failure) if failure.taken_at().is_some() && app.printer.caller().is_none() => Err(failure),
        // Somebody came in between: then it cannot be told how it is, unless by that one.
        Err(failure) if home.pool_user(known).is_some() => {
            other_process::read(home, known).map(|word| word.report).ok_or(failure)
        }
        Err(failure) => {
            let action = failure.hint.unwrap_or_default();
            let report = PoolReport::unreachable(known, &failure.message, &action);
            Ok(if failure.reason == Reason::Denied { report.of_unknown_state() } else { report })
        }
    }
}
