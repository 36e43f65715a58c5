//! `pool set`: settings kept with the pool.

use clap::Args;
use stripewise_control::access::Access;
use stripewise_control::failure::pool_failure;
use stripewise_control::names::PoolName;
use stripewise_control::pools::session::{Session, with_pool};
use stripewise_control::request::{ChangeSettings, Setting};
use stripewise_control::response::{PoolChange, PoolChanged, Response};
use stripewise_engine::pool::PoolError;

use crate::commands::App;
use crate::failure::Result;

/// Change settings of a pool
#[derive(Args)]
pub(crate) struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// rebuild-priority=low|medium|high|1..100: percent of each drive's time that rebuilds get
    /// while there is other load; patrol-rate=RATE|none: a scrub reads at most so much per second,
    /// as in 20MB; patrol-interval=DAYS|none: a scrub begins by itself so long after the last one;
    /// space-warning=1..100: percent of the space in use from which on the status warns;
    /// tier-rate=RATE|off: at most so much per second is moved between fast and data drives, as in
    /// 100MB; off: as much as the rebuild priority gives
    #[arg(value_name = "SETTING=VALUE", required = true)]
    settings: Vec<Setting>,
}

async fn apply(setting: Setting, session: &Session) -> std::result::Result<(), PoolError> {
    let pool = &session.pool;
    let (rate_before, interval_before, _) = pool.patrol();
    match setting {
        Setting::RebuildPriority(percent) => pool.set_rebuild_priority(percent).await,
        Setting::PatrolRate(rate) => pool.set_patrol(rate, interval_before).await,
        Setting::PatrolInterval(interval) => pool.set_patrol(rate_before, interval).await,
        Setting::SpaceWarning(percent) => pool.set_space_warning(percent).await,
        Setting::TierRate(rate) => pool.set_tier_rate(rate).await,
    }
}

impl Options {
    /// What is asked by them.
    pub(crate) fn request(&self) -> ChangeSettings {
        ChangeSettings { pool: self.name.clone(), settings: self.settings.clone() }
    }
}

/// Runs it.
pub(crate) async fn run(asked: &ChangeSettings, app: &App) -> Result<Response> {
    let name = &asked.pool.0;
    let report = with_pool(app, name, Access::Change, &format!("pool set {name}"), async |session| {
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
        app.served.has(name),
    )))
}
