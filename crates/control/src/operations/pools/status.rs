//! `pool status`: shows the state of pools and the next command to run. Read-only. If another
//! process has the pool open, its status file is shown.
//!
//! Expected faults: missing drives, even all of them; a pool in use.

use crate::access::Access;
use crate::control::Control;
use crate::failure::{Reason, Result};
use crate::messages::report::PoolReport;
use crate::messages::request::ShowPools;
use crate::messages::response::{Pools, Response};
use crate::pools::other_process;
use crate::pools::session::{Session, with_pool};
use crate::registry::{KnownPool, Registry};

/// Executes `pool status`.
pub async fn run(asked: &ShowPools, control: &Control) -> Result<Response> {
    Ok(Response::Pools(Pools { pools: reports(asked, control).await? }))
}

/// Reports of the pools asked for.
pub(crate) async fn reports(asked: &ShowPools, control: &Control) -> Result<Vec<PoolReport>> {
    let registry = control.registry()?;
    let known = match &asked.pool {
        Some(name) => vec![registry.pool(&name.0)?],
        None => registry.pools()?,
    };
    let mut pools = Vec::new();
    for pool in &known {
        pools.push(report(control, &registry, pool).await?);
    }
    Ok(pools)
}

async fn report(control: &Control, registry: &Registry, known: &KnownPool) -> Result<PoolReport> {
    if let Some(status) = other_process::wait_for(control, registry, known).await? {
        return Ok(status.report);
    }
    let look = async |session: &Session| {
        // A daemon samples the drives' hardware at intervals.
        if !session.is_lent() {
            session.sample_hardware().await?;
        }
        Ok(session.report())
    };
    match with_pool(control, &known.name, Access::Look, "pool status", look).await {
        Ok(report) => Ok(report),
        Err(failure) if failure.taken_at().is_some() && control.caller().is_none() => Err(failure),
        // Another process opened the pool in between: only its status file can show the state.
        Err(failure) if registry.pool_user(known).is_some() => {
            other_process::read(registry, known).map(|status| status.report).ok_or(failure)
        }
        Err(failure) => {
            let action = failure.hint.unwrap_or_default();
            let report = PoolReport::unreachable(known, &failure.message, &action);
            Ok(if failure.reason == Reason::Denied { report.of_unknown_state() } else { report })
        }
    }
}
