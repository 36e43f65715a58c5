//! `pool get`: the settings of a pool, in the notation in which `pool set` takes them.
//!
//! Expected faults: those of `pool status`.

use crate::access::Access;
use crate::control::Control;
use crate::failure::{Failure, Result};
use crate::messages::request::{GetSettings, Setting};
use crate::messages::response::{PoolSettings, Response, SettingValue};
use crate::pools::other_process;
use crate::pools::session::{Session, with_pool};

/// Executes `pool get`.
pub async fn run(asked: &GetSettings, control: &Control) -> Result<Response> {
    let registry = control.registry()?;
    let known = registry.pool(&asked.pool.0)?;
    let report = match other_process::wait_for(control, &registry, &known).await? {
        Some(status) => status.report,
        None => {
            let look = async |session: &Session| Ok(session.report());
            with_pool(control, &known.name, Access::Look, "pool get", look).await?
        }
    };
    let all = Setting::all_of(&report);
    let is_asked = |setting: &&Setting| match asked.key.as_deref() {
        // The name of an earlier version.
        Some("patrol-interval") => setting.name() == "scrub",
        Some(key) => setting.name() == key,
        None => true,
    };
    let value = |setting: &Setting| SettingValue { key: setting.name().to_owned(), value: setting.value() };
    let settings: Vec<SettingValue> = all.iter().filter(is_asked).map(value).collect();
    if let (Some(key), true) = (&asked.key, settings.is_empty()) {
        let names: Vec<&str> = all.iter().map(Setting::name).collect();
        return Err(Failure::usage(format!("unknown setting `{key}`"))
            .hint(format!("settings: {}", names.join(", "))));
    }
    Ok(Response::Settings(PoolSettings { pool: report.name, settings, is_one: asked.key.is_some() }))
}
