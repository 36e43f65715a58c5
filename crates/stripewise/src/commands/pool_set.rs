//! `pool set`: settings kept with the pool.

use std::str::FromStr;

use clap::Args;
use stripewise_engine::pool::{
    REBUILD_PRIORITY_HIGH_PERCENT, REBUILD_PRIORITY_LOW_PERCENT, REBUILD_PRIORITY_MEDIUM_PERCENT,
};

use crate::commands::{App, Pools};
use crate::failure::{Exit, Result};
use crate::names::PoolName;
use crate::session::{Access, pool_failure, with_pool};

/// Change a setting of a pool
#[derive(Args)]
pub struct Options {
    /// The pool
    #[arg(value_name = "POOL")]
    name: PoolName,
    /// rebuild-priority=low|medium|high|1..100: percent of each drive's time that rebuilds get while there is other load
    #[arg(value_name = "SETTING=VALUE")]
    setting: Setting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    RebuildPriority(u32),
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let Some(("rebuild-priority", value)) = text.split_once('=') else {
            return Err(format!("`{text}` is no setting; there is rebuild-priority=low|medium|high|1..100"));
        };
        let percent = match value {
            "low" => REBUILD_PRIORITY_LOW_PERCENT,
            "medium" => REBUILD_PRIORITY_MEDIUM_PERCENT,
            "high" => REBUILD_PRIORITY_HIGH_PERCENT,
            _ => match value.parse() {
                Ok(percent @ 1..=100) => percent,
                _ => {
                    return Err(format!(
                        "`{value}` is no rebuild priority; low, medium, high or 1 to 100 (percent)"
                    ));
                }
            },
        };
        Ok(Self::RebuildPriority(percent))
    }
}

/// Runs it.
pub fn run(options: &Options, app: &App) -> Result<Exit> {
    let name = &options.name.0;
    let Setting::RebuildPriority(percent) = options.setting;
    let report = with_pool(app, name, Access::Change, &format!("pool set {name}"), |session| {
        let set = session.run(session.pool.set_rebuild_priority(percent));
        set.map_err(|error| pool_failure(format!("cannot change pool `{name}`"), &error))?;
        Ok(session.report())
    })?;
    app.printer.result(&Pools { pools: vec![report] }, |page| {
        page.line(format!(
            "pool {name}: rebuilds get {percent} % of each drive's time while there is other load"
        ));
    })?;
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_words_or_percentages() {
        assert_eq!("rebuild-priority=low".parse(), Ok(Setting::RebuildPriority(10)));
        assert_eq!("rebuild-priority=high".parse(), Ok(Setting::RebuildPriority(60)));
        assert_eq!("rebuild-priority=100".parse(), Ok(Setting::RebuildPriority(100)));
        for text in
            ["rebuild-priority=0", "rebuild-priority=101", "rebuild-priority=", "rebuild-priority", "x=1"]
        {
            assert!(text.parse::<Setting>().is_err(), "{text}");
        }
    }
}
