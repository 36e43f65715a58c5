//! `pool status`: how pools are, and what to type next. Looks only; beside a process that works on
//! the pool it shows what that one says.
//!
//! Expected faults: drives that are gone, all of them even; a pool in use.

use crate::access::Access;
use crate::control::Control;
use crate::failure::{Reason, Result};
use crate::messages::report::PoolReport;
use crate::messages::request::ShowPools;
use crate::messages::response::{Pools, Response};
use crate::pools::other_process;
use crate::pools::session::with_pool;
use crate::registry::{KnownPool, Registry};

/// Carries it out.
pub async fn run(asked: &ShowPools, control: &Control) -> Result<Response> {
    let registry = control.registry()?;
    let known = match &asked.pool {
        Some(name) => vec![registry.pool(&name.0)?],
        None => registry.pools()?,
    };
    let mut pools = Vec::new();
    for pool in &known {
        pools.push(report(control, &registry, pool).await?);
    }
    Ok(Response::Pools(Pools { pools }))
}

async fn report(control: &Control, registry: &Registry, known: &KnownPool) -> Result<PoolReport> {
    if let Some(word) = other_process::wait_for(control, registry, known).await? {
        return Ok(word.report);
    }
    match with_pool(control, &known.name, Access::Look, "pool status", async |session| Ok(session.report()))
        .await
    {
        Ok(report) => Ok(report),
        Err(failure) if failure.taken_at().is_some() && control.caller().is_none() => Err(failure),
        // Somebody came in between: then it cannot be told how it is, unless by that one.
        Err(failure) if registry.pool_user(known).is_some() => {
            other_process::read(registry, known).map(|word| word.report).ok_or(failure)
        }
        Err(failure) => {
            let action = failure.hint.unwrap_or_default();
            let report = PoolReport::unreachable(known, &failure.message, &action);
            Ok(if failure.reason == Reason::Denied { report.of_unknown_state() } else { report })
        }
    }
}
