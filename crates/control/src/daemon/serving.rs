//! Opening and closing the pools of a daemon. Pools open one after the other, each after the pools
//! below it, and close in reverse order. Pools registered later are adopted.
//!
//! Expected faults: pools that cannot be opened (reported; the others are served), hosts that do
//! not respond (their pools open later), requests that never complete (closing has a time limit).

use std::collections::HashMap;
use std::pin::pin;

use futures_channel::oneshot;
use stripewise_drive::Context;
use stripewise_export::budget::Budget;
use stripewise_export::start_threads;

use crate::control::Control;
use crate::daemon::turns::Turns;
use crate::drives::candidates::{Place, noted_export, noted_place};
use crate::failure::{Failure, Result};
use crate::notation::names::PoolName;
use crate::pools::session::Session;
use crate::registry::{KnownPool, Registry};

/// Interval between checks of the registry for new pools.
const ADOPT_NS: u64 = 1_000_000_000;
/// Maximum attempts to open a pool on local drives.
const MAX_ATTEMPTS: u32 = 5;
/// Checks between further attempts to open a pool with drives on other hosts. These are unlimited,
/// as such hosts may come up late.
const LOOKS_PER_LATER_ATTEMPT: u32 = 30;

/// Shutdown timeout, shorter than that of the service manager (`dist/stripewise.service`).
pub const END_WITHIN_SECONDS: u64 = 90;
/// Interval between checks for memory of connections to return to the system.
const GIVE_BACK_NS: u64 = 2_000_000_000;
/// Maximum time that the start waits for pools with drives on other hosts.
const FAR_PATIENCE_NS: u64 = 5_000_000_000;

/// Starts the threads that volumes and connections are spread over, `cores` with this one.
pub fn start_cores(control: &Control, cores: usize) -> Result<()> {
    start_threads(&*control.executor()?, cores).map_err(|error| {
        let failure = Failure::because(format!("cannot start {cores} threads"), &error);
        failure.hint("use --cores 1, or raise the limit on locked memory or processes (`ulimit -l -u`)")
    })
}

/// Serves pools that are created or imported while the daemon runs.
pub async fn adopt(control: &Control, turns: &Turns) -> Result<()> {
    let (registry, context) = (control.registry()?, control.executor()?.context());
    let mut attempts: HashMap<String, u32> = HashMap::new();
    loop {
        context.sleep_ns(ADOPT_NS).await;
        // A registry that is unreadable at present has no bearing on the served pools.
        for pool in registry.pools().unwrap_or_default() {
            let attempt = attempts.entry(pool.id.clone()).or_default();
            let may_come_later = is_far(&pool);
            let is_known_here = control.served.has(&pool.name) || control.served.is_coming(&pool.name);
            if is_known_here || (*attempt >= MAX_ATTEMPTS && !may_come_later) {
                continue;
            }
            // No command here is waiting for the other process to release the pool.
            if registry.pool_user(&pool).is_some() {
                continue;
            }
            *attempt = attempt.saturating_add(1);
            if *attempt > MAX_ATTEMPTS && !attempt.is_multiple_of(LOOKS_PER_LATER_ATTEMPT) {
                continue;
            }
            match open(control, &pool).await {
                Ok(()) => {
                    attempts.remove(&pool.id);
                    control.note(format!("pool {} is now served", pool.name));
                }
                // The command that creates or imports the pool still holds its drives.
                Err(_) if turns.is_any_taken() => *attempt -= 1,
                // The process that has just created the pool may still hold it.
                Err(_) if *attempt != MAX_ATTEMPTS => {}
                Err(failure) => not_served(&pool, &failure),
            }
        }
    }
}

/// Returns the named pools, or all, each after the pools below it.
pub fn wanted_pools(names: &[PoolName], registry: &Registry) -> Result<Vec<KnownPool>> {
    let known = registry.pools()?;
    let named: Vec<KnownPool> = match names {
        [] => known.clone(),
        names => names.iter().map(|name| registry.pool(&name.0)).collect::<Result<_>>()?,
    };
    let mut ordered = Vec::new();
    for pool in &named {
        put_behind_those_below(pool, &known, &mut Vec::new(), &mut ordered);
    }
    Ok(ordered)
}

fn put_behind_those_below(
    pool: &KnownPool,
    known: &[KnownPool],
    above: &mut Vec<String>,
    ordered: &mut Vec<KnownPool>,
) {
    // A pool that is stacked on itself is refused when it is opened.
    if above.contains(&pool.name) || ordered.iter().any(|other| other.id == pool.id) {
        return;
    }
    above.push(pool.name.clone());
    for drive in &pool.drives {
        if let Place::Volume(volume) = noted_place(&drive.path)
            && let Some(below) = known.iter().find(|other| other.name == volume.pool)
        {
            put_behind_those_below(below, known, above, ordered);
        }
    }
    above.pop();
    ordered.push(pool.clone());
}

/// Returns the memory of connections to the system when none of it is in use any more.
pub async fn give_memory_back(context: Context, budget: Budget) {
    let mut was_used = false;
    loop {
        context.sleep_ns(GIVE_BACK_NS).await;
        let is_used = budget.used_bytes() > 0;
        if was_used && !is_used {
            stripewise_runtime::give_memory_back();
        }
        was_used = is_used;
    }
}

/// Opens the pools and starts their jobs. Pools with drives on other hosts open concurrently, and
/// slow ones keep opening after this returns: a host that does not respond must not delay the
/// others.
pub async fn open_all(control: &Control, pools: &[KnownPool], all_are_wanted: bool) -> Result<()> {
    let context = control.executor()?.context();
    let mut opening = Vec::new();
    for pool in pools {
        if is_far(pool) {
            opening.push((pool, begin_opening(control, &context, pool)));
            continue;
        }
        match open(control, pool).await {
            Err(failure) if all_are_wanted => return Err(failure),
            Err(failure) => not_served(pool, &failure),
            Ok(()) => {}
        }
    }
    let end_ns = context.now_ns() + FAR_PATIENCE_NS;
    for (pool, opened) in opening {
        let left_ns = end_ns.saturating_sub(context.now_ns());
        match context.time_limit_ns(left_ns, pin!(opened)).await {
            Ok(Ok(Err(failure))) if all_are_wanted => return Err(failure),
            Ok(Ok(Err(failure))) => not_served(pool, &failure),
            Ok(Ok(Ok(()))) => {}
            Ok(Err(_)) | Err(_) => control.warning(format!(
                "pool {} is served later: its drives on other machines do not respond yet",
                pool.name
            )),
        }
    }
    Ok(())
}

/// True if a drive of the pool is an NBD export.
fn is_far(pool: &KnownPool) -> bool {
    pool.drives.iter().any(|drive| noted_export(&drive.path).is_some())
}

/// Opens a pool concurrently. The result goes to the receiver, or is reported if that was dropped.
fn begin_opening(control: &Control, context: &Context, pool: &KnownPool) -> oneshot::Receiver<Result<()>> {
    let (control, pool) = (control.clone(), pool.clone());
    let (result, opened) = oneshot::channel();
    drop(context.spawn(async move {
        match result.send(open(&control, &pool).await) {
            Ok(()) => {}
            Err(Ok(())) => control.note(format!("pool {} is now served", pool.name)),
            Err(Err(failure)) => {
                not_served(&pool, &failure);
                control.served.is_to_come(pool);
            }
        }
    }));
    opened
}

/// Opens a pool, starts its jobs, and serves it. Commands for the pool wait until then.
pub async fn open(control: &Control, pool: &KnownPool) -> Result<()> {
    let _coming = control.served.comes(&pool.name);
    let session = Session::open_to_serve(control, &pool.name, "serve").await?;
    begin_serving(session);
    Ok(())
}

/// Serves an open pool and starts its jobs.
pub fn begin_serving(session: Session) {
    let report = session.report();
    tracing::info!(
        target: "pool", pool = report.name, state = %report.state, drives = report.drives.len(),
        volumes = report.volumes.len(), jobs = report.activity.len(), "opened"
    );
    session.show_notices();
    session.start_jobs();
    session.serve();
}

fn not_served(pool: &KnownPool, failure: &Failure) {
    tracing::warn!(target: "pool", pool = pool.name, "pool {} is not served: {}", pool.name, failure.message);
}

/// Runs `closing` with a time limit, since requests to drives may never complete.
pub async fn in_time(
    control: &Control,
    seconds: u64,
    closing: impl Future<Output = Result<()>>,
) -> Result<()> {
    let context = control.executor()?.context();
    let closed = context.time_limit_ns(seconds.saturating_mul(1_000_000_000), pin!(closing)).await;
    closed.unwrap_or_else(|_| {
        let message = format!("not all pools could be closed within {seconds} s: they are left as in a crash");
        Err(Failure::new(message).hint(
            "no data that was acknowledged as durable is lost: the next process to open them replays their journals",
        ))
    })
}

/// Closes all pools, the last opened first, and returns the first error.
pub async fn close_all(control: &Control) -> Result<()> {
    let mut result = Ok(());
    while let Some(session) = Session::end_serving_last(control) {
        let pool = session.name().to_owned();
        let closed = session.close().await;
        match &closed {
            Ok(()) => tracing::info!(target: "pool", pool, "closed"),
            Err(failure) => tracing::error!(target: "pool", pool, "not closed: {}", failure.message),
        }
        result = result.and(closed);
    }
    result
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::registry::KnownDrive;

    #[test]
    fn pools_are_served_after_the_pools_below_them() {
        let pool = |name: &str, drives: &[&str]| KnownPool {
            name: name.to_owned(),
            id: name.to_owned(),
            drives: drives
                .iter()
                .map(|path| KnownDrive { id: String::new(), path: PathBuf::from(path) })
                .collect(),
        };
        let known = [
            pool("above", &["middle/a", "/d/0"]),
            pool("below", &["/d/1"]),
            pool("middle", &["below/x", "below/y"]),
        ];
        let order = |names: &[&str]| {
            let mut ordered = Vec::new();
            for name in names {
                let pool = known.iter().find(|pool| pool.name == *name).expect("known");
                put_behind_those_below(pool, &known, &mut Vec::new(), &mut ordered);
            }
            ordered.into_iter().map(|pool| pool.name).collect::<Vec<_>>()
        };
        assert_eq!(order(&["above", "below", "middle"]), ["below", "middle", "above"]);
        assert_eq!(order(&["middle"]), ["below", "middle"]);
        let circle = [pool("a", &["b/x"]), pool("b", &["a/x"])];
        let mut ordered = Vec::new();
        put_behind_those_below(&circle[0], &circle, &mut Vec::new(), &mut ordered);
        assert_eq!(ordered.len(), 2);
    }
}
