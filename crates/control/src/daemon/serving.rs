//! Pools that are kept open: opened one behind the other, those that lie on others last; taken up
//! as they come to be known; closed in the opposite order.
//!
//! Expected faults: pools that cannot be opened (said so, and the rest is served), machines that do
//! not answer (waited for, and opened later), requests that never end (closing has a limit).

use std::collections::HashMap;
use std::pin::pin;

use futures_channel::oneshot;
use stripewise_drive::Context;
use stripewise_export::budget::Budget;

use crate::control::Control;
use crate::daemon::turns::Turns;
use crate::drives::candidates::{Place, noted_export, noted_place};
use crate::failure::{Failure, Result};
use crate::notation::names::PoolName;
use crate::pools::session::Session;
use crate::registry::{KnownPool, Registry};

/// How often the list of pools is looked at for new ones.
const ADOPT_NS: u64 = 1_000_000_000;
/// How often it is tried to open one.
const MAX_ATTEMPTS: u32 = 5;
/// One with drives on other machines, which may come later than this, is tried for ever, once in so
/// many looks.
const LOOKS_PER_LATER_ATTEMPT: u32 = 30;

/// Seconds that closing may take: less than the service manager allows (`dist/stripewise.service`).
pub const END_WITHIN_SECONDS: u64 = 90;
/// How often it is looked whether memory of connections can be given back.
const GIVE_BACK_NS: u64 = 2_000_000_000;
/// The start waits so long for pools with drives on other machines.
const FAR_PATIENCE_NS: u64 = 5_000_000_000;

/// Serves pools as they come to be known: made or imported while this runs.
pub async fn adopt(control: &Control, turns: &Turns) -> Result<()> {
    let (registry, context) = (control.registry()?, control.executor()?.context());
    let mut attempts: HashMap<String, u32> = HashMap::new();
    loop {
        context.sleep_ns(ADOPT_NS).await;
        // A list that cannot be read now says nothing of the pools that are served.
        for pool in registry.pools().unwrap_or_default() {
            let attempt = attempts.entry(pool.id.clone()).or_default();
            let may_come_later = is_far(&pool);
            let is_known_here = control.served.has(&pool.name) || control.served.is_coming(&pool.name);
            if is_known_here || (*attempt >= MAX_ATTEMPTS && !may_come_later) {
                continue;
            }
            // No command waits for another process to let go of it.
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
                    control.note(format!("pool {} is served from now on", pool.name));
                }
                // The command that makes or imports it has not let go of its drives yet.
                Err(_) if turns.is_taken() => *attempt -= 1,
                // Another process that has just made it may not have let go of it yet.
                Err(_) if *attempt != MAX_ATTEMPTS => {}
                Err(failure) => not_served(&pool, &failure),
            }
        }
    }
}

/// The pools asked for, or all; each behind those that it lies on.
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
    // One that lies on itself is refused when it is opened.
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

/// Gives memory back that connections had in use, when nothing of it is in use any more.
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

/// Opens the pools and begins their jobs. Pools with drives on other machines are opened beside
/// each other, and those that take long go on being opened when this has ended: a machine that does
/// not answer must not hold up the others.
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
                "pool {} is served later: drives of it on other machines do not answer yet",
                pool.name
            )),
        }
    }
    Ok(())
}

/// Whether a drive of the pool is behind a server.
fn is_far(pool: &KnownPool) -> bool {
    pool.drives.iter().any(|drive| noted_export(&drive.path).is_some())
}

/// Opens a pool beside everything else. What came of it goes to the receiver while that is there;
/// later it is only told.
fn begin_opening(control: &Control, context: &Context, pool: &KnownPool) -> oneshot::Receiver<Result<()>> {
    let (control, pool) = (control.clone(), pool.clone());
    let (told, opened) = oneshot::channel();
    drop(context.spawn(async move {
        match told.send(open(&control, &pool).await) {
            Ok(()) => {}
            Err(Ok(())) => control.note(format!("pool {} is served from now on", pool.name)),
            Err(Err(failure)) => {
                not_served(&pool, &failure);
                control.served.is_to_come(pool);
            }
        }
    }));
    opened
}

/// Opens a pool, begins its jobs, and serves it from now on. Commands for it wait until then.
pub async fn open(control: &Control, pool: &KnownPool) -> Result<()> {
    let _coming = control.served.comes(&pool.name);
    let session = Session::open_to_serve(control, &pool.name, "serve").await?;
    begin_serving(session);
    Ok(())
}

/// Serves a pool that was opened, and works on its jobs.
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

/// Closing, which is given up after so many seconds: requests to drives may never be answered.
pub async fn in_time(
    control: &Control,
    seconds: u64,
    closing: impl Future<Output = Result<()>>,
) -> Result<()> {
    let context = control.executor()?.context();
    let closed = context.time_limit_ns(seconds.saturating_mul(1_000_000_000), pin!(closing)).await;
    closed.unwrap_or_else(|_| {
        let message = format!("not all pools could be closed within {seconds} s: they are left as after a crash");
        Err(Failure::new(message).hint(
            "nothing that was acknowledged as durable is lost: the next process to open them goes on from their journals",
        ))
    })
}

/// Closes them, the last opened first. The first error is reported; all are closed.
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
