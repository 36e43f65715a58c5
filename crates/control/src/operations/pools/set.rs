//! `pool set`: settings kept with the pool.

use stripewise_pool::PoolError;

use crate::access::Access;
use crate::control::Control;
use crate::failure::{Result, pool_failure};
use crate::messages::request::{ChangeSettings, Setting};
use crate::messages::response::{PoolChange, PoolChanged, Response};
use crate::pools::session::{Session, with_pool};

async fn apply(setting: Setting, session: &Session) -> std::result::Result<(), PoolError> {
    let pool = &session.pool;
    let (rate_before, interval_before, _) = pool.patrol();
    match setting {
        Setting::RebuildPriority(percent) => pool.set_rebuild_priority(percent).await,
        Setting::RebuildLatency(bound) => pool.set_rebuild_latency(bound).await,
        Setting::PatrolRate(rate) => pool.set_patrol(rate, interval_before).await,
        Setting::PatrolInterval(interval) => pool.set_patrol(rate_before, interval).await,
        Setting::SpaceWarning(percent) => pool.set_space_warning(percent).await,
        Setting::TierRate(rate) => pool.set_tier_rate(rate).await,
    }
}

/// Carries it out.
pub async fn run(asked: &ChangeSettings, control: &Control) -> Result<Response> {
    let name = &asked.pool.0;
    let report = with_pool(control, name, Access::Change, &format!("pool set {name}"), async |session| {
        for setting in &asked.settings {
            let set = apply(*setting, session).await;
            set.map_err(|error| pool_failure(format!("cannot change pool `{name}`"), &error))?;
        }
        Ok(session.report())
    })
    .await?;
    Ok(Response::PoolChanged(PoolChanged::new(
        report,
        PoolChange::SettingsChanged(asked.settings.clone()),
        control.served.has(name),
    )))
}
