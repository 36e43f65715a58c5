//! What was done to a pool, in words.

use stripewise_control::report::{DriveState, PoolReport, counted};
use stripewise_control::request::Setting;
use stripewise_control::response::{PoolChange, PoolChanged};
use stripewise_control::size::ByteSize;
use stripewise_engine::pool::Role;

use crate::commands::App;
use crate::printer::Page;

const DAY_S: u64 = 86_400;

/// What is said before the result.
pub(super) fn before(changed: &PoolChanged, app: &App) {
    let PoolChange::Created { data_drives } = changed.change else { return };
    note_notices(changed.pool(), app);
    app.note(format!("next: {}", next_command(&changed.pool().name, data_drives)));
}

/// What is said after it.
pub(super) fn after(changed: &PoolChanged, app: &App) {
    if matches!(changed.change, PoolChange::DrivesAdded { .. }) {
        note_notices(changed.pool(), app);
    }
}

fn note_notices(pool: &PoolReport, app: &App) {
    for notice in &pool.notices {
        app.note(format!("note: {notice}"));
    }
}

/// The result.
pub(super) fn words(changed: &PoolChanged, page: &mut Page) {
    let pool = changed.pool();
    let name = &pool.name;
    match &changed.change {
        PoolChange::Created { .. } => page.line(format!(
            "pool {name}: {}, {} for volumes and their redundancy",
            counted(pool.drives.len(), "drive"),
            ByteSize(pool.capacity_bytes)
        )),
        PoolChange::DrivesAdded { count, role } => {
            let role = match role {
                Role::Data => "for volumes",
                Role::Spare => "as spare",
                Role::Journal => "for journals",
                Role::Fast => "as fast",
            };
            page.line(format!("pool {name}: {} added {role}", counted(*count, "drive")));
            due(changed, page);
        }
        PoolChange::DriveRemoved { path } => {
            page.line(format!("{path} is no drive of pool {name} any more"));
        }
        PoolChange::DriveRetired { path, is_gone: true, .. } => {
            page.line(format!("{path} is empty, and no drive of pool {name} any more"));
        }
        PoolChange::DriveRetired { path, is_gone: false, .. } => {
            page.line(format!("{path} is to be emptied; nothing new is put on it"));
            due(changed, page);
        }
        PoolChange::DriveOffline { path, id } => {
            page.line(format!("{path} is offline and may be pulled"));
            page.line(format!(
                "`stripewise pool online {name} {id}` takes it back: then only what changed is copied"
            ));
        }
        PoolChange::DriveOnline { path, was_reopened } => {
            page.line(format!("{path} is used again in pool {name}"));
            if *was_reopened {
                page.line(format!(
                    "pool {name} was reopened, since it had lost more drives than it can do without: clients reconnect"
                ));
            }
            due(changed, page);
        }
        PoolChange::DriveReplaced { old, new } => {
            page.line(match pool.drives.iter().any(|drive| drive.state == DriveState::Replacing) {
                true => {
                    format!("replacing {old} with {new} in pool {name}: until that is done both are used")
                }
                false => format!("{new} takes the place of {old} in pool {name}"),
            });
            due(changed, page);
        }
        PoolChange::RebalanceBegun => {
            page.line(due_text(changed).unwrap_or_else(|| format!("pool {name} is balanced")));
        }
        PoolChange::NothingToRebalance => {
            page.line(format!("pool {name}: nothing is moved, since no volume could grow further by it"));
        }
        PoolChange::RebalanceStopped => {
            page.line(format!("the rebalance of pool {name} is stopped; what has moved stays where it is"));
        }
        PoolChange::NoRebalance => page.line(format!("pool {name} has no rebalance to stop")),
        PoolChange::ScrubAsked => match due_text(changed) {
            Some(due) => page.line(due),
            None => page.line(format!("pool {name} has no volumes: there is nothing to scrub")),
        },
        PoolChange::Cleared { path: Some(path) } => {
            page.line(format!("pool {name}: the error counts of {path} begin again from 0"));
        }
        PoolChange::Cleared { path: None } => {
            page.line(format!("pool {name}: all error counts begin again from 0"));
        }
        PoolChange::SettingsChanged(settings) => {
            for setting in settings {
                page.line(format!("pool {name}: {}", in_words(*setting)));
            }
        }
        PoolChange::Renamed { from } => page.line(format!("pool {from} is called {name} now")),
        PoolChange::Destroyed => page.line(format!("pool {name} is destroyed; its drives are free")),
    }
}

fn due(changed: &PoolChanged, page: &mut Page) {
    if let Some(due) = due_text(changed) {
        page.line(due);
    }
}

/// What is due in a pool, and how it gets done; `None` where nothing is.
fn due_text(changed: &PoolChanged) -> Option<String> {
    let pool = changed.pool();
    let mut kinds: Vec<&str> = pool.activity.iter().map(|job| job.kind.as_str()).collect();
    kinds.dedup();
    let first = kinds.first()?;
    let (kinds, name) = (kinds.join(" and a "), &pool.name);
    Some(match changed.is_served {
        true => {
            format!("a {kinds} goes on in the daemon; `stripewise pool wait {name} {first}` waits for it")
        }
        false => format!("a {kinds} is due; `stripewise pool wait {name} {first}` does it"),
    })
}

/// What to type next: with layouts that so many drives allow.
fn next_command(pool: &str, drives: usize) -> String {
    let (layout, others) = match drives {
        1 => ("single", ""),
        2 => ("raid1", "   (raid0, raid10, single)"),
        3 => ("raid5", "   (raid0, raid1, raid10 …)"),
        _ => ("raid5", "   (raid0, raid1, raid6, raid10 …)"),
    };
    format!("stripewise volume create {pool}/VOL --layout {layout}{others}")
}

fn in_words(setting: Setting) -> String {
    match setting {
        Setting::RebuildPriority(percent) => {
            format!("rebuilds get {percent} % of each drive's time while there is other load")
        }
        Setting::RebuildLatency(None) => {
            "what rebuilds add to the latency of other load has no bound".to_owned()
        }
        Setting::RebuildLatency(Some(ms)) => {
            format!("rebuilds add at most {ms} ms to the time that a request waits for a drive")
        }
        Setting::PatrolRate(None) => "scrubs read as fast as the rebuild priority lets them".to_owned(),
        Setting::PatrolRate(Some(rate)) => format!("scrubs read at most {} per second", ByteSize(rate)),
        Setting::PatrolInterval(None) => "scrubs begin only by hand".to_owned(),
        Setting::PatrolInterval(Some(seconds)) => {
            let days = seconds as f64 / DAY_S as f64;
            format!(
                "a scrub begins by itself {days:.2} days after the last one, while a process has the pool open"
            )
        }
        Setting::TierRate(None) => {
            "rows move between fast and data drives as fast as the rebuild priority lets them".to_owned()
        }
        Setting::TierRate(Some(rate)) => {
            format!("at most {} per second are moved between fast and data drives", ByteSize(rate))
        }
        Setting::SpaceWarning(percent) => {
            format!("the status warns from {percent} % of the space in use on")
        }
    }
}
