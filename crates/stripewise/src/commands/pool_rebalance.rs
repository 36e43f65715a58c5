//! `pool rebalance`: spreads what volumes take over all data drives, so that free space can be used
//! by the layouts there are; with `--wait` does it at once. It begins by itself when a drive is
//! added; `--stop` ends it where it is.
//!
//! Expected faults: nothing to gain (said; nothing is moved), an interrupt (the next process to
//! open the pool goes on).

use clap::Args;
use stripewise_control::access::Access;
use stripewise_control::failure::pool_failure;
use stripewise_control::names::PoolName;
use stripewise_control::pools::session::with_pool;
use stripewise_control::report::PoolReport;
use stripewise_control::request::Rebalance;
use stripewise_control::response::{PoolChange, PoolChanged, Response};
use stripewise_engine::pool::JobKind;

use crate::commands::App;
use crate::failure::Result;
use crate::jobs::work;

/// Spread volumes over all data drives, so that free space can be used
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// Do it now, in the foreground, instead of whenever the pool's jobs are worked on
    #[arg(long)]
    wait: bool,
    /// Stop a rebalance; what has moved stays where it is
    #[arg(long, conflicts_with = "wait")]
    stop: bool,
}

enum Outcome {
    Done(Box<stripewise_control::jobs::Done>),
    Begun(Box<PoolReport>),
    NothingToGain(Box<PoolReport>),
    Stopped(Box<PoolReport>),
    NothingToStop(Box<PoolReport>),
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> Rebalance {
        Rebalance { pool: self.name.clone(), wait: self.wait, stop: self.stop }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &Rebalance, app: &App) -> Result<Response> {
    let name = &asked.pool.0;
    let doing = format!("pool rebalance {name}");
    let outcome = with_pool(app, name, Access::Change, &doing, async |session| {
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
        if asked.wait {
            return work(app, session, JobKind::Rebalance).await.map(|done| Outcome::Done(Box::new(done)));
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
    Ok(Response::PoolChanged(PoolChanged::new(*report, change, app.served.has(name))))
}
