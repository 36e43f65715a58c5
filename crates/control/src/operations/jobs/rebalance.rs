//! `pool rebalance`: spreads what volumes take over all data drives, so that free space can be used
//! by the layouts there are: in the daemon if it serves the pool (`--wait` waits for that), else in
//! the foreground, since nothing else would do it. It begins by itself when a drive is added;
//! `--stop` ends it where it is.
//!
//! Expected faults: nothing to gain (said; nothing is moved), an interrupt (the next process to
//! open the pool goes on).

use stripewise_pool::JobKind;

use crate::access::Access;
use crate::control::Control;
use crate::failure::{Result, pool_failure};
use crate::jobs::work;
use crate::messages::report::PoolReport;
use crate::messages::request::Rebalance;
use crate::messages::response::{PoolChange, PoolChanged, Response};
use crate::pools::session::with_pool;

enum Outcome {
    Done(Box<crate::jobs::Done>),
    Begun(Box<PoolReport>),
    NothingToGain(Box<PoolReport>),
    Stopped(Box<PoolReport>),
    NothingToStop(Box<PoolReport>),
}

/// Executes `pool rebalance`.
pub async fn run(asked: &Rebalance, control: &Control) -> Result<Response> {
    let name = &asked.pool.0;
    let doing = format!("pool rebalance {name}");
    let outcome = with_pool(control, name, Access::Change, &doing, async |session| {
        let report = || Box::new(session.report());
        if asked.stop {
            let stopped = session.pool.stop_rebalance().await;
            let stopped = stopped
                .map_err(|error| pool_failure(format!("cannot stop rebalancing pool `{name}`"), &error))?;
            return Ok(if stopped { Outcome::Stopped(report()) } else { Outcome::NothingToStop(report()) });
        }
        let begun = session.pool.rebalance().await;
        let is_due =
            begun.map_err(|error| pool_failure(format!("cannot rebalance pool `{name}`"), &error))?;
        if !is_due {
            return Ok(Outcome::NothingToGain(report()));
        }
        if asked.wait || !control.served.has(name) {
            return work(control, session, JobKind::Rebalance)
                .await
                .map(|done| Outcome::Done(Box::new(done)));
        }
        Ok(Outcome::Begun(report()))
    })
    .await?;
    let (report, change) = match outcome {
        Outcome::Done(done) => return Ok(Response::JobsDone(*done)),
        Outcome::Begun(report) => (report, PoolChange::RebalanceBegun),
        Outcome::NothingToGain(report) => (report, PoolChange::NothingToRebalance),
        Outcome::Stopped(report) => (report, PoolChange::RebalanceStopped),
        Outcome::NothingToStop(report) => (report, PoolChange::NoRebalance),
    };
    Ok(Response::PoolChanged(PoolChanged::new(*report, change, control.served.has(name))))
}
